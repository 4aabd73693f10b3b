#!/bin/bash
# deploy/checks/postgres.sh on a real PostgreSQL: with fsync no state fails, with fsync=off one is found. Takes minutes: a state costs a
# recovery. Not among the scripts that run by default.
#   AT (mark) and STATES (2): where power fails, and states per point   ROWS (12)
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/lib.sh"
export FTLD_STATE_DIR=$SCRATCH/state FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_METRICS=off
programs=$(find /usr/lib/postgresql -name initdb -printf '%h\n' 2> /dev/null | sort -V | tail -n 1)
[ -x "$programs/initdb" ] || give_up "there is no PostgreSQL: apt-get install postgresql"
PATH=$programs:$PATH
chmod 755 "$SCRATCH"
cd "$SCRATCH" || exit
mkdir mnt fuse sockets
chown nobody sockets
as_nobody=(setpriv --reuid nobody --regid nogroup --clear-groups)
server=("${as_nobody[@]}" pg_ctl -D "$SCRATCH/mnt/pg/data" -w -l "$SCRATCH/sockets/log")
ask() { psql -h "$SCRATCH/sockets" -U postgres -d postgres -Atqc "$1"; }
# shellcheck disable=SC2317 # called by the trap
clean_up() {
  "${server[@]}" -m immediate stop > /dev/null 2>&1
  umount -l "$SCRATCH/mnt" 2> /dev/null
  fusermount3 -uz "$SCRATCH/fuse" 2> /dev/null
  ftld stop --force pg > /dev/null 2>&1
  cd / && rm -rf "$SCRATCH"
}
trap clean_up EXIT

# explored NAME FSYNC WANTED: rows with this setting of fsync, then the states at every mark.
explored() {
  local name=$1 fsync=$2 wanted=$3 rc=0 i begin
  ftld --detach --name pg --image "$name.ftld" --size 192MiB --record "$name.rec" 'nbd+unix:///?socket=pg.sock' > /dev/null 2>&1
  nbdfuse fuse/disk 'nbd+unix:///?socket=pg.sock' &
  soon "$name: a file of the device" 5 test -e fuse/disk
  step "$name: mkfs" mkfs.ext4 -q fuse/disk
  step "$name: mount" mount -o loop fuse/disk mnt
  install -d -o nobody mnt/pg
  step "$name: initdb" "${as_nobody[@]}" initdb -D mnt/pg/data -U postgres --wal-segsize=1 -A trust
  step "$name: start" "${server[@]}" -o "-c listen_addresses= -k $SCRATCH/sockets -c fsync=$fsync -c min_wal_size=2MB -c max_wal_size=4MB" start || return
  ask 'create extension amcheck; create table rows (id int primary key, text text)' || bad "$name: table"
  sync -f mnt
  step "$name: mark" ftld mark 0
  for i in $(seq "${ROWS:-12}"); do
    if ! ask "insert into rows values ($i, repeat('x', 3000))" || ! ftld mark "$i" > /dev/null; then bad "$name: row $i"; fi
  done
  "${server[@]}" -m immediate stop > /dev/null
  step "$name: umount" umount mnt
  soon "$name: the file of the device goes" 10 fusermount3 -u fuse
  wait
  step "$name: stop" ftld stop pg
  begin=$(now)
  ftld crashes "$name.rec" --at "${AT:-mark}" --states "${STATES:-2}" --timeout 5m \
    --check "$root/deploy/checks/postgres.sh /pg/data postgres rows" > "$name.out" 2>&1 || rc=$?
  same "$name: exit code of ftld crashes" $rc "$wanted"
  note "$name: $(grep 'states,' "$name.out"), $(($(now) - begin)) s"
  [ $rc = "$wanted" ] || cat "$name.out"
}
explored with_fsync on 0
explored without_fsync off 1
finish
