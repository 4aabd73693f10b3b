#!/bin/sh
# `git gc` on branches that were synced to the disk before: mark 1 is after the sync, mark 2 after git gc.
# usage: gc.sh run FOLDER [NAME=VALUE]     option of git, such as core.fsync=all
#        gc.sh check FOLDER                  does git find its objects, and the branches?
set -eu
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
report() {
  echo "ACK $1"
  read -r answer && [ "$answer" = OK ]
}
case $1 in
run)
  git init -q -b main "$2/repository"
  cd "$2/repository"
  [ $# = 2 ] || git config "${3%%=*}" "${3#*=}"
  for number in 1 2 3; do
    echo "$number" > file
    git add file
    git commit -q -m "$number"
    git branch "branch-$number"
  done
  sync -f .
  report 1
  git gc -q
  report 2
  ;;
check)
  [ -n "$FTLD_MARK" ] || exit 0
  cd "$2/repository"
  # A lock that a cut has left is removed by hand, as git says.
  find .git -name '*.lock' -delete
  for number in 1 2 3; do
    found=$(git log -1 --format=%s "branch-$number" --) || { echo "branch-$number is gone"; exit 1; }
    [ "$found" = "$number" ] || { echo "branch-$number says $found"; exit 1; }
  done
  git fsck --full --strict --no-dangling
  ;;
esac
