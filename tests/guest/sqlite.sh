# shellcheck shell=dash
# SQLite on ext4 on /dev/ublkb0 under kills, power cuts and failing syncs, with a write-ahead log
# and with a rollback journal. After each fault integrity_check is clean, every commit that returned
# is there, and no transaction is there in part. A killed daemon is started again under SQLite,
# which must not notice.
#   FAULTS (3)   for each kind of journal; the three kinds take turns
# shellcheck source=tests/lib.sh
. /bin/lib.sh

# Transaction n inserts n into heads, and into the ledger the rows of the view `wanted` for n.
schema="CREATE TABLE heads (n INTEGER PRIMARY KEY);
  CREATE TABLE parts (part INTEGER PRIMARY KEY);
  INSERT INTO parts VALUES (1), (2), (3);
  CREATE TABLE ledger (n INTEGER, part INTEGER, data TEXT, PRIMARY KEY (n, part));
  CREATE INDEX by_data ON ledger (data);
  CREATE VIEW wanted AS SELECT n, part, printf('%0*d', 20 + n * 37 % 400 * part, n * 10 + part) data
    FROM heads, parts WHERE part <= 1 + n % 3;"

# connect: settings of a connection. A database file keeps the mode `wal` only; every connection has
# to set another mode, else it is `delete`. There synchronous=full may roll the last commit back after
# a power cut, because nothing syncs the folder that the journal is deleted from.
connect() {
  printf '%s\n' ".timeout 60000" ".output /dev/null" "PRAGMA journal_mode=$journal;" \
    ".output stdout" "PRAGMA synchronous=full;"
}

# sql STATEMENTS...
sql() { { connect; printf '%s\n' "$@"; } | sqlite3 -bail /mnt/ledger.db; }

# commits FROM: transactions until the device fails. Each that returned leaves its number in one of
# two files, in turn.
commits() {
  {
    connect
    awk -v n="$1" 'BEGIN { for (;;) {
      n++
      print "BEGIN IMMEDIATE; INSERT INTO heads VALUES (" n ");"
      print "INSERT INTO ledger SELECT * FROM wanted WHERE n = " n "; COMMIT;"
      print ".once /tmp/done." n % 2 "\nSELECT " n ";"
    } }' 2> /dev/null
  } | sqlite3 -bail /mnt/ledger.db > /tmp/commits.log 2>&1
}
noted() { cat /tmp/done.0 /tmp/done.1 | sort -n | tail -n 1; }
# shellcheck disable=SC2317 # called by soon
more_than() {
  local noted
  noted=$(noted)
  number "$noted" && [ "$noted" -gt "$1" ]
}

# judge NAME BEFORE: everything that is noted is there, and nothing is there in part. BEFORE is the
# head before the fault.
judge() {
  local before=$2
  same "$1: integrity check" "$(sql 'PRAGMA integrity_check;')" ok
  local noted
  noted=$(noted)
  head=$(sql 'SELECT coalesce(max(n), 0) FROM heads;')
  if number "$head" && number "$noted" && [ "$head" -ge "$noted" ] && [ "$head" -le $((noted + 1)) ]; then
    ok "$1: $noted commits noted, $head there"
    total=$((total + noted - before))
  else bad "$1: $noted commits noted, '$head' there"; fi
  same "$1: transactions there" "$(sql 'SELECT count(*) FROM heads;')" "$head"
  same "$1: rows missing, rows too many" "$(sql \
    'SELECT count(*) FROM (SELECT * FROM wanted EXCEPT SELECT * FROM ledger);' \
    'SELECT count(*) FROM (SELECT * FROM ledger EXCEPT SELECT * FROM wanted);' | tr '\n' ' ')" "0 0 "
}

# back NAME: after a fault that took the device away.
back() {
  step "$1: umount of what is left" umount /mnt
  [ "$2" = power-cut ] || { kill -TERM "$FTLD"; wait "$FTLD"; }
  soon "$1: the device is gone" 20 gone /dev/ublkb0
  serve --image "$image" /dev/ublkb0 || return
  step "$1: journal replay" mount -t ext4 /dev/ublkb0 /mnt || return
  step "$1: umount" umount /mnt
  step "$1: file system check" e2fsck -fn /dev/ublkb0
  step "$1: mount after a restart" mount -t ext4 -o discard /dev/ublkb0 /mnt
}

strike() {
  local name=$1 kind=$2 before=$3
  case $kind in
  kill)
    kill -9 "$FTLD"
    wait "$FTLD" 2> /dev/null
    before=$(noted)
    serve --image "$image" /dev/ublkb0 || return
    # SQLite continues, and ends on request, without an error from the device.
    soon "$name: commits go on" 60 more_than $((before + 2))
    killall sqlite3
    wait "$worker"
    same "$name: bytes of what SQLite complains of" "$(wc -c < /tmp/commits.log)" 0
    ;;
  power-cut)
    step "$name: inject" ftld inject power-cut --after $((before * 7 % 300)) --seed "$before"
    soon "$name: the daemon ends" 60 ended "$FTLD"
    wait "$FTLD"
    same "$name: its exit code" $? 9
    ;;
  sync)
    strace -f -q -p "$FTLD" -o /tmp/strace.log -e trace=fdatasync -e inject=fdatasync:error=EIO &
    tracer=$!
    soon "$name: a sync of the image fails" 60 grep -q INJECTED /tmp/strace.log
    ;;
  esac
  [ "$kind" = kill ] || {
    soon "$name: SQLite ends" 60 ended "$worker"
    [ "$kind" != sync ] || { kill "$tracer" && wait "$tracer"; } 2> /dev/null
    note "$name: $(tail -n 1 /tmp/commits.log)"
    back "$name" "$kind"
  }
}

kills=0 cuts=0 syncs=0 total=0
for journal in wal truncate; do
  image=/var/lib/ftld/$journal.ftld
  serve --scheme lazyftl --size "${SIZE:-64MiB}" --image "$image" /dev/ublkb0 || continue
  step "$journal: mkfs" mkfs.ext4 -q -F -b 4096 -J size=4 /dev/ublkb0
  step "$journal: mount" mount -t ext4 -o discard /dev/ublkb0 /mnt || continue
  same "$journal: rows of the schema" "$(sql "$schema" 'SELECT count(*) FROM parts;')" 3
  same "$journal: journal of a new connection" "$(sql "PRAGMA journal_mode;")" $journal
  fault=0
  while [ $fault -lt "${FAULTS:-3}" ]; do
    kind=$(echo kill power-cut sync | cut -d' ' -f$((fault % 3 + 1)))
    fault=$((fault + 1))
    head=$(sql 'SELECT coalesce(max(n), 0) FROM heads;')
    rm -f /tmp/strace.log
    echo "$head" | tee /tmp/done.0 > /tmp/done.1
    commits "$head" &
    worker=$!
    start=$head
    soon "$journal, fault $fault: commits return" 60 more_than $((head + 3)) || break
    strike "$journal, fault $fault, $kind" "$kind" "$(noted)"
    judge "$journal, fault $fault, $kind" "$start"
    case $kind in
    kill) kills=$((kills + 1)) ;;
    power-cut) cuts=$((cuts + 1)) ;;
    sync) syncs=$((syncs + 1)) ;;
    esac
  done
  step "$journal: umount" umount /mnt
  step "$journal: file system check" e2fsck -fn /dev/ublkb0
  quit "$journal"
  step "$journal: ftld check" ftld check "$image"
  rm "$image"
done
note "$cuts power cuts, $kills kills, $syncs failing syncs; $total commits noted and there"
finish
