#!/bin/bash
# A check for `ftld crashes`: ext4 in the whole image. e2fsck replays the journal on the copy; then the file system is clean.
# usage: ftld crashes run.rec --check 'ext4.sh [FILE]'
#   FILE   a file on the file system that has the text of the last mark, or a later one: marks are numbers that grow
# Needs e2fsprogs. No mount, no root. A cut before mkfs has ended leaves no file system: the first mark says that there is one.
set -uo pipefail
[ -n "$FTLD_MARK" ] || exit 0
# What a mount does by itself: replay the journal, release orphans. More is damage (exit codes above 1).
e2fsck -fp "$FTLD_IMAGE"
[ $? -le 1 ] || { echo "e2fsck: the file system is damaged"; exit 1; }
e2fsck -fn "$FTLD_IMAGE" || { echo "e2fsck: not clean after the journal was replayed"; exit 1; }
[ $# = 1 ] || exit 0
case $FTLD_MARK in 0 | *[!0-9]*) exit 0 ;; esac # mark 0: there is a file system, and no more
has=$(debugfs -R "cat $1" "$FTLD_IMAGE" 2> /dev/null)
case $has in
"" | *[!0-9]*) echo "$1 has '$has', mark $FTLD_MARK was reported"; exit 1 ;;
esac
[ "$has" -ge "$FTLD_MARK" ] || { echo "$1 has $has, mark $FTLD_MARK was reported"; exit 1; }
