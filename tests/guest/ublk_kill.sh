# kill -9 of the daemon under load, again and again: the device waits, the next daemon takes it up, and nobody notices.
# No FLUSH is sent in between, so every acknowledged write stands for itself.
. /bin/lib.sh
for scheme in $(schemes); do
  image=/var/lib/ftld/$scheme.ftld
  serve --scheme "$scheme" --size "${SIZE:-128MiB}" --image "$image" /dev/ublkb0 || continue
  errors=$(io_errors ublkb0)
  (fio_verify $((KILLS * 3 + 3)) --filename=/dev/ublkb0; echo $? > /tmp/fio.rc) &
  fio=$!
  kill=0
  while [ $kill -lt "$KILLS" ]; do
    kill=$((kill + 1))
    kill_9 "$FTLD" ublkb0
    begin=$(cut -d' ' -f1 /proc/uptime)
    serve --image "$image" /dev/ublkb0 || break
    note "$scheme: kill $kill of $KILLS, serving again after $(cut -d' ' -f1 /proc/uptime | awk "{ print \$1 - $begin }") s"
  done
  wait $fio
  same "$scheme: fio verify across $KILLS kills, exit code" "$(cat /tmp/fio.rc)" 0
  same "$scheme: I/O errors" "$(($(io_errors ublkb0) - errors))" 0
  quit "$scheme"
  step "$scheme: ftld check" ftld check "$image"
  rm "$image"
done
finish
