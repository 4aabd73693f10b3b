#!/bin/bash
# A check for `ftld crashes`: an SQLite database on ext4. The database is whole and has every row that a mark reported.
# usage: ftld crashes run.rec --check 'sqlite.sh /app.db TABLE'     mark N: rows 1 to N, by rowid, are committed
# Needs e2fsprogs and sqlite3. No mount, no root.
set -uo pipefail
[ $# = 2 ] || { echo "usage: sqlite.sh /DATABASE TABLE" >&2; exit 126; }
[ -n "$FTLD_MARK" ] || exit 0
"$(dirname "$0")"/ext4.sh || exit 1
[ "$FTLD_MARK" != 0 ] || exit 0 # mark 0: there is a file system, and no more
# shellcheck disable=SC2153 # of ftld crashes
cd "$FTLD_WORK" || exit 126
# The database and its journals; a journal that is not there is no error.
for file in "$1" "$1-wal" "$1-journal"; do debugfs -R "dump $file ${file##*/}" "$FTLD_IMAGE" > /dev/null 2>&1; done
name=${1##*/}
[ -s "$name" ] || { echo "there is no $1"; exit 1; }
# SQLite rolls its journal back, or its WAL forward, as it opens the database.
said=$(sqlite3 "$name" 'pragma integrity_check' 2>&1)
[ "$said" = ok ] || { echo "$said"; exit 1; }
case $FTLD_MARK in *[!0-9]*) exit 0 ;; esac
rows=$(sqlite3 "$name" "select count(*) from $2 where rowid <= $FTLD_MARK" 2>&1)
[ "$rows" = "$FTLD_MARK" ] || { echo "$rows of $FTLD_MARK reported rows are there"; exit 1; }
