# shellcheck shell=dash
# System calls and CPU time per request of a ublk server: ftld, and rublk null and loop. All servers
# run at once, and have the load one after the other, round after round. The machine is emulated, so
# CPU times compare only with each other. Run by tests/bench/ublk.py, which reads the lines with
# "figures":
#     figures SERVER LOAD REQUESTS SYSTEM_CALLS CPU_NS NAME=COUNT...
# shellcheck source=tests/lib.sh
. /bin/lib.sh
: "${BENCH_ROUNDS:=5}" "${BENCH_MIB:=64}" "${BENCH_REQUESTS:=4000}"
TRACING=/sys/kernel/tracing
TRIGGER=$TRACING/events/raw_syscalls/sys_enter/trigger
COUNTS=$TRACING/events/raw_syscalls/sys_enter/hist
# Counts every system call of the machine by thread and name, inside the kernel.
HISTOGRAM="hist:keys=common_pid,id.syscall:size=8192"

# server NAME NUMBER PID: one of the servers to measure.
server() { SERVERS="$SERVERS $1:$2:$3"; }
SERVERS=

# rublk_serve NUMBER TARGET ARGS...: starts rublk; sets RUBLK to its process.
rublk_serve() {
  local number=$1
  shift
  rublk add "$@" -n "$number" -q 1 -d 64 --foreground > "/tmp/rublk.$number" 2>&1 &
  RUBLK=$!
  soon "rublk $1" 30 test -b "/dev/ublkb$number" || { cat "/tmp/rublk.$number"; finish; }
}

# load NAME: fio's options.
load() {
  case $1 in
  4k-read) echo "--rw=randread --bs=4k --number_ios=$BENCH_REQUESTS" ;;
  4k-write) echo "--rw=randwrite --bs=4k --number_ios=$BENCH_REQUESTS" ;;
  128k-read) echo "--rw=read --bs=128k --number_ios=$((BENCH_REQUESTS / 8))" ;;
  128k-write) echo "--rw=write --bs=128k --number_ios=$((BENCH_REQUESTS / 8))" ;;
  *) return 1 ;;
  esac
}

# run_fio NUMBER OPTIONS...: on the whole device, at queue depth 32.
run_fio() {
  local number=$1
  shift
  timeout 300 fio --name=bench --eta=never --ioengine=libaio --direct=1 --iodepth=32 --filename="/dev/ublkb$number" --norandommap=1 --randrepeat=0 \
    --size=100% "$@" > /tmp/fio.log 2>&1 || { bad "fio on ublkb$number"; tail -n 20 /tmp/fio.log; }
}

# requests_done NUMBER: completed reads and writes of the device.
requests_done() { awk '{ print $1 + $5 }' "/sys/block/ublkb$1/stat"; }
# cpu_ns PID: CPU time of all threads.
cpu_ns() { cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'; }
# calls PID: the sum of the system calls of its threads, then NAME=COUNT of each, most frequent
# first.
calls() {
  cat "$COUNTS" > /tmp/counts
  ls /proc/"$1"/task > /tmp/threads
  awk 'NR == FNR { mine[$1] = 1; next }
    /^\{ common_pid:/ {
      gsub(/[{}:,]/, " ")
      # common_pid PID id sys_NAME [ NUMBER] hitcount COUNT
      if (!($2 in mine)) next
      name = $4; sub(/^sys_/, "", name); count = $NF
      sum += count; by[name] += count
    }
    END { printf "%d", sum; for (name in by) printf " %s=%d", name, by[name]; print "" }' /tmp/threads /tmp/counts
}

# measure SERVER NUMBER PID LOAD
measure() {
  local before cpu done_before requests counted options
  options=$(load "$4") || give_up "no load $4"
  before=$(cpu_ns "$3") done_before=$(requests_done "$2")
  echo "$HISTOGRAM" > "$TRIGGER"
  # shellcheck disable=SC2086 # words
  run_fio "$2" $options
  counted=$(calls "$3")
  echo "!$HISTOGRAM" > "$TRIGGER"
  cpu=$(($(cpu_ns "$3") - before)) requests=$(($(requests_done "$2") - done_before))
  note "figures $1 $4 $requests ${counted%% *} $cpu ${counted#* }"
  if ! number "$requests" || [ "$requests" -lt $((BENCH_REQUESTS / 8)) ] || [ "${counted%% *}" -lt 1 ] || [ "$cpu" -lt 1 ]; then
    bad "$1, $4: no figures"
  fi
}

mount -t tracefs none $TRACING || give_up "no tracefs"
[ -e "$TRIGGER" ] || give_up "this kernel has no triggers of events"
number=0
for scheme in $(schemes); do
  serve --scheme "$scheme" --op 28 --size "${BENCH_MIB}MiB" --image "/tmp/$scheme.ftld" "/dev/ublkb$number" || finish
  server "ftld-$scheme" $number "$FTLD"
  run_fio $number --rw=write --bs=128k
  run_fio $number --rw=randwrite --bs=4k --loops=3
  ok "$scheme is filled, and three times its size written at random"
  number=$((number + 1))
done
rublk_serve $number null
server rublk-null $number $RUBLK
number=$((number + 1))
truncate -s "${BENCH_MIB}M" /tmp/loop.raw
rublk_serve $number loop -f /tmp/loop.raw --buffered-io
server rublk-loop $number $RUBLK
run_fio $number --rw=write --bs=128k

for entry in $SERVERS; do
  device=${entry#*:}
  echo 2 > "/sys/block/ublkb${device%%:*}/queue/nomerges"
done
round=0
while [ $round -lt "$BENCH_ROUNDS" ]; do
  for what in 4k-read 4k-write 128k-read 128k-write; do
    for entry in $SERVERS; do
      device=${entry#*:}
      measure "${entry%%:*}" "${device%%:*}" "${entry##*:}" $what
    done
  done
  round=$((round + 1))
  ok "round $round of $BENCH_ROUNDS"
done
finish
