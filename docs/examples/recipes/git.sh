#!/bin/sh
# A recipe for `ftld crash-test`: a branch of git. Commit N says N, and is reported once git has ended.
# usage: git.sh run FOLDER COMMITS [NAME=VALUE...]   options of git, such as core.fsync=all; core.fsync=none syncs nothing
#        git.sh check FOLDER                         does git find its objects, and the branch the reported commit?
set -eu
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=ftld GIT_AUTHOR_EMAIL=ftld GIT_COMMITTER_NAME=ftld GIT_COMMITTER_EMAIL=ftld
case ${1:-} in
run)
  folder=$2 commits=$3
  shift 3
  git init -q "$folder/repository"
  # A new repository is not synced by git.
  sync -f "$folder"
  cd "$folder/repository"
  for option; do git config "${option%%=*}" "${option#*=}"; done
  number=0
  while [ "$number" -lt "$commits" ]; do
    number=$((number + 1))
    echo "$number" > file
    git add file
    git commit -q -m "$number"
    echo "ACK $number"
    read -r answer && [ "$answer" = OK ]
  done
  ;;
check)
  [ -n "$FTLD_MARK" ] || exit 0
  cd "$2/repository"
  # A lock that a cut has left is removed by hand, as git says.
  rm -f .git/*.lock .git/refs/heads/*.lock
  git fsck --full --strict --no-dangling
  found=$(git log -1 --format=%s)
  [ "$found" -ge "$FTLD_MARK" ] || { echo "commit $found is the last one"; exit 1; }
  ;;
*)
  sed -n '3,4s/^# *//p' "$0" >&2
  exit 126
  ;;
esac
