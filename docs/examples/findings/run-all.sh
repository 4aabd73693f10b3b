#!/bin/sh
# All findings, or those of the folders that are named. Exit code 0 if each shows as recorded.
# usage: run-all.sh [NAME...]        an ordinary user; a minute each, and the downloads. RECORDED=yes: the kept recordings
set -u
cd "$(dirname "$0")" || exit 1
[ $# -gt 0 ] || set -- */
failed=0
for name; do
  sh "${name%/}/run.sh"
  case $? in
  0 | 77) ;;
  *) failed=1 ;;
  esac
done
exit $failed
