# The README's minute, line by line as it stands there.
. /bin/lib.sh
curl() { wget -q -O - "http://$2"; } # -s ADDRESS
mkdir -p /usr/share/doc
for number in 1 2 3; do dd if=/dev/urandom of=/usr/share/doc/$number bs=1M count=4 2> /dev/null; done

# run LINE: a server in the background is waited for.
run() {
  : > /tmp/readme.out
  sleep 1 # as a hand would; figures are published ten times a second
  eval "$1" > /tmp/readme.out 2> /tmp/readme.err || return
  case ${1%%#*} in *"& ") wait_for 60 grep -q '^ready /dev/ublkb0 metrics=http://127.0.0.1:9917/metrics$' /tmp/readme.out ;; esac
}

sed -n '/^A minute with it/,/^No ublk/p' /bin/README.md | sed -n '/^```sh$/,/^```$/p' | grep -v '^```' | tr -s ' ' > /tmp/readme.lines
[ "$(wc -l < /tmp/readme.lines)" -ge 8 ] || bad "the README has no demonstration"
while read -r line <&3; do
  if run "$line"; then ok "$line"; else bad "$line"; cat /tmp/readme.out /tmp/readme.err; fi
  case $line in
  curl*) grep -q '^ftld_write_amplification_ratio{device="ublkb0"} [1-9]' /tmp/readme.out || bad "no write amplification" ;;
  *"kill -9"*) same "the device is still mounted" "$(grep -c '^/dev/ublkb0 /mnt ' /proc/mounts)" 1 ;;
  esac
done 3< /tmp/readme.lines
soon "the device is gone" 5 gone /dev/ublkb0
same "I/O errors" "$(io_errors ublkb0)" 0
step "ftld check" ftld check ublkb0
finish
