# shellcheck shell=dash
# The README's mount, line by line as it stands there. native/readme.sh has the README's other blocks.
# shellcheck source=tests/lib.sh
. /bin/lib.sh
# shellcheck disable=SC2317 # called by the lines of the page
curl() { wget -q -O - "http://$2"; } # -s ADDRESS
mkdir -p /usr/share/doc
for number in 1 2 3; do dd if=/dev/urandom of=/usr/share/doc/$number bs=1M count=4 2> /dev/null; done
cd "$SCRATCH" || exit

# run LINE: a server in the background is waited for.
run() {
  : > /tmp/readme.out
  sleep 1 # as a hand would; figures are published ten times a second
  eval "$1" > /tmp/readme.out 2> /tmp/readme.err || return
  case ${1%%#*} in *"& ") wait_for 60 grep -q '^ready /dev/ublkb0 metrics=http://127.0.0.1:9917/metrics$' /tmp/readme.out ;; esac
}

# blocks FILE FIRST LAST: what is to be typed between two lines of a page.
# shellcheck disable=SC2016 # backquotes of Markdown
blocks() { sed -n "/$2/,/$3/p" "$1" | sed -n '/^```sh$/,/^```$/p' | grep -v '^```' | tr -s ' ' > /tmp/readme.lines; }

# play LEAST: every line succeeds, and what it shows is looked at by `after LINE`.
play() {
  [ "$(wc -l < /tmp/readme.lines)" -ge "$1" ] || bad "there is no demonstration"
  while read -r line <&3; do
    if run "$line"; then ok "$line"; else bad "$line"; cat /tmp/readme.out /tmp/readme.err; fi
    after "$line"
  done 3< /tmp/readme.lines
  soon "the device is gone" 5 gone /dev/ublkb0
}

after() {
  case $1 in
  curl*) grep -q '^ftld_write_amplification_ratio{device="ublkb0"} [1-9]' /tmp/readme.out || bad "no write amplification" ;;
  *"kill -9"*) same "the device is still mounted" "$(grep -c '^/dev/ublkb0 /mnt ' /proc/mounts)" 1 ;;
  esac
}
blocks /bin/README.md "^## Mount$" "^## Mount without"
play 8
same "I/O errors" "$(io_errors ublkb0)" 0
step "ftld check" ftld check ublkb0
finish
