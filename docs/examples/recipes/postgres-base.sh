#!/bin/sh
# A recipe for `ftld crash-test`: PostgreSQL (Debian's postgresql), not as root, with `--memory 512MiB`. A row is reported once its
# INSERT returned.
# usage: postgres-base.sh run FOLDER ROWS [NAME=VALUE...]   settings of the server, such as fsync=off, synchronous_commit=off
#        postgres-base.sh check FOLDER                      does it recover, with a whole index and every reported row?
set -eu
PATH=$(find /usr/lib/postgresql -name initdb -printf '%h\n' | sort -V | tail -n 1):$PATH
case ${1:-} in
run)
  data=$2/base rows=$3 work=$(mktemp -d)
  shift 3
  settings="-k $work -h '' -c min_wal_size=2MB -c max_wal_size=4MB -c shared_buffers=8MB"
  for setting; do settings="$settings -c $setting"; done
  trap 'pg_ctl -D "$data" -m immediate stop > /dev/null; rm -rf "$work"' EXIT
  initdb -D "$data" -U postgres --wal-segsize=1 -A trust > "$work/log"
  pg_ctl -D "$data" -w -l "$work/log" -o "$settings" start > /dev/null
  ask() { psql -h "$work" -U postgres -d postgres -qc "$1"; }
  ask 'create extension amcheck; create table rows (id int primary key, text text)'
  # The cluster is there, whatever the settings.
  sync -f "$data"
  number=0
  while [ "$number" -lt "$rows" ]; do
    number=$((number + 1))
    ask "insert into rows values ($number, repeat('x', 1000))"
    echo "ACK $number"
    read -r answer && [ "$answer" = OK ]
  done
  ;;
check)
  [ -n "$FTLD_MARK" ] || exit 0
  rm -f "$2/base/postmaster.pid"
  # shellcheck disable=SC2153 # of ftld crashes
  log=$FTLD_WORK/log
  # A server of a single user recovers as any other, and needs no socket. An error ends it.
  echo "select bt_index_check('rows_pkey', true); select count(*) from rows where id <= $FTLD_MARK" |
    postgres --single -D "$2/base" -c fsync=off -c exit_on_error=on postgres > "$log" 2>&1 || :
  found=$(sed -n 's/.* count = "\([0-9]*\)".*/\1/p' "$log")
  [ "${found:-0}" = "$FTLD_MARK" ] || { tail -n 5 "$log"; echo "${found:-none} of $FTLD_MARK reported rows are there"; exit 1; }
  ;;
*)
  sed -n '4,5s/^# *//p' "$0" >&2
  exit 126
  ;;
esac
