#!/bin/sh
# Makes a check that is a program one that stays up, for `--server`: a state costs a start of the program, and no more. What a check
# leaves, processes or files in FTLD_WORK, stays until the exploration ends.
# usage: server.sh PROGRAM [WORD...]     PROGRAM WORD... FOLDER checks a state
# example: ftld crashes crash-test.rec --files --server --check 'recipes/server.sh recipes/git.sh check'
[ $# -gt 0 ] || { sed -n '4,5s/^# *//p' "$0" >&2; exit 126; }
tab=$(printf '\t')
newline='
'
while IFS= read -r line; do
  answer=$(FTLD_MARK=${line##*"$tab"} "$@" "${line%"$tab"*}" 2>&1 < /dev/null) && echo ok && continue
  code=$? answer=${answer##*"$newline"}
  echo "${answer:-exit code $code}"
done
