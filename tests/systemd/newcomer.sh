#!/bin/bash
# A fresh Debian with nothing but the .deb, and somebody who types what docs/OPERATING.md says.
# shellcheck source=/dev/null # written by run.sh
. /root/settings
SCRATCH=/run
# shellcheck source=tests/lib.sh
. /root/lib.sh
cd /root || exit
get() {
  exec 3<> /dev/tcp/127.0.0.1/9917 && printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1:9917\r\n\r\n' "$1" >&3 && cat <&3
}
export -f get

wait_for 120 systemctl is-system-running
same "the system" "$(systemctl is-system-running)" running
step "there is no ftld yet" sh -c '! command -v ftld'
began=$(cut -d' ' -f1 /proc/uptime)
# shellcheck disable=SC2016 # backquotes of Markdown
sed -n '/^From the package/,/^```$/p' OPERATING.md | sed '1,/^```sh$/d; /^```$/d' > typed
same "commands" "$(wc -l < typed)" 4
while read -r line <&3; do step "$line" bash -c "$line"; done 3< typed
note "from the package to the mount: $(awk -v began="$began" '{ printf "%.1f s", $1 - began }' /proc/uptime)"
step "it is mounted" findmnt --source /dev/ublkb0
step "it can be written" dd if=/dev/urandom of=/mnt/data bs=1M count=8 conv=fsync status=none
step "the live page is there" bash -c 'get / | grep -a "<title>"'
step "its figures say that it serves" bash -c 'sleep 1; get /status | grep -a "\"state\": \"serving\""'
step "ftld status" ftld status
step "ftld doctor" bash -c 'ftld doctor /dev/ublkb1 --metrics off'
step "the manual" test -s /usr/share/man/man8/ftld.8.gz
main_pid() { systemctl show --value -p MainPID ftld@ublkb0; }
before=$(main_pid)
at_least "a process serves it" "$before" 2
step "an upgrade" dpkg -i /root/ftld.deb
same "it restarts nothing" "$(main_pid)" "$before"
step "stop unmounts" systemctl stop ftld@ublkb0
same "mounts" "$(mounts_of /dev/ublkb0)" 0
step "the package goes" dpkg -r ftld
step "the image stays" test -s /var/lib/ftld/ublkb0.ftld
if [ $FAILED = 1 ]; then journalctl -b -o short-monotonic -u 'ftld*'; else echo BOOT-OK; fi
systemctl poweroff
