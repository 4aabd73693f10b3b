#!/bin/bash
# A check for `ftld crashes`: a PostgreSQL cluster on ext4. It recovers, amcheck finds nothing, every reported row is there.
# usage: ftld crashes run.rec --timeout 120s --check 'postgres.sh /pgdata DATABASE TABLE'   mark N: column id has 1 to N
# Needs e2fsprogs and the programs of the cluster's PostgreSQL on the PATH (/usr/lib/postgresql/15/bin). Not as root: PostgreSQL
# refuses that; as root the check runs it as the user nobody.
set -uo pipefail
[ $# = 3 ] || { echo "usage: postgres.sh /FOLDER DATABASE TABLE" >&2; exit 126; }
[ -n "$FTLD_MARK" ] || exit 0
"$(dirname "$0")"/ext4.sh || exit 1
[ "$FTLD_MARK" != 0 ] || exit 0 # mark 0: there is a file system, and no more
# shellcheck disable=SC2153 # of ftld crashes
cd "$FTLD_WORK" || exit 126
debugfs -R "rdump $1 ." "$FTLD_IMAGE" > /dev/null 2>&1
data=$PWD/${1##*/}
[ -s "$data/PG_VERSION" ] || { echo "there is no cluster in $1"; exit 1; }
chmod 700 "$data"
as=()
if [ "$(id -u)" = 0 ]; then
  as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
  chown -R 65534:65534 "$data" "$PWD"
fi
rm -f "$data/postmaster.pid"
"${as[@]}" pg_ctl -D "$data" -w -t 60 -l "$data/log" -o "-c listen_addresses= -k $PWD -c fsync=off" start > /dev/null ||
  { echo "the cluster does not start:"; tail -n 5 "$data/log"; exit 1; }
ask() { "${as[@]}" psql -h "$PWD" -U postgres -d "$1" -Atc "$2"; }
failed=0
ask "$2" 'create extension if not exists amcheck' > /dev/null || failed=1
"${as[@]}" pg_amcheck -h "$PWD" -U postgres --heapallindexed "$2" || { echo "pg_amcheck found damage"; failed=1; }
case $FTLD_MARK in
*[!0-9]*) ;;
*)
  rows=$(ask "$2" "select count(*) from $3 where id <= $FTLD_MARK")
  [ "$rows" = "$FTLD_MARK" ] || { echo "${rows:-no} of $FTLD_MARK reported rows are there"; failed=1; }
  ;;
esac
"${as[@]}" pg_ctl -D "$data" -m immediate stop > /dev/null
exit $failed
