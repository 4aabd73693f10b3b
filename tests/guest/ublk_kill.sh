# shellcheck shell=dash
# kill -9 of the daemon under load, again and again: the device waits, the next daemon reattaches it, and no client
# sees an error. No FLUSH is sent in between, so every acknowledged write must survive without one.
# shellcheck source=tests/lib.sh
. /bin/lib.sh
names=$(schemes) || give_up "ftld names no scheme"
for scheme in $names; do
  image=/var/lib/ftld/$scheme.ftld
  serve --scheme "$scheme" --size "${SIZE:-128MiB}" --image "$image" /dev/ublkb0 || continue
  errors=$(io_errors ublkb0)
  fio_verify $((KILLS * 3 + 3)) --filename=/dev/ublkb0 &
  fio=$!
  kill=0
  while [ $kill -lt "$KILLS" ]; do
    kill=$((kill + 1))
    kill_9 "$FTLD" ublkb0
    begin=$(cut -d' ' -f1 /proc/uptime)
    serve --image "$image" /dev/ublkb0 || break
    note "$scheme: kill $kill of $KILLS, serving again after $(cut -d' ' -f1 /proc/uptime | awk "{ print \$1 - $begin }") s"
  done
  wait "$fio"
  same "$scheme: fio verify across $KILLS kills, exit code" $? 0
  same "$scheme: I/O errors as before" "$(io_errors ublkb0)" "$errors"
  quit "$scheme"
  step "$scheme: ftld check" ftld check "$image"
  rm "$image"
done
finish
