#!/bin/bash
# ftld's units under a real systemd: boot through fstab, crashes, stops, power off, and the boot after it.
# On its second boot the machine looks back at the first.
# shellcheck source=/dev/null # written by run.sh
. /root/settings
SCRATCH=/run
# shellcheck source=tests/lib.sh
. /root/lib.sh
unit=ftld@ublkb0.service
at=/mnt/flash

seconds() { cut -d' ' -f1 /proc/uptime; }
since() { awk -v began="$1" '{ printf "%.1f s", $1 - began }' /proc/uptime; }
of() { systemctl show --value -p "$1" "${2:-$unit}"; }
active() { [ "$(of ActiveState)" = active ]; }
state_is() { [ "$(of ActiveState)" = "$1" ]; }
status_says() { of StatusText | grep -q -- "$1"; }
restarted() { [ "$(of NRestarts)" -gt "$1" ] && active; }
# Kernel messages of errors, in this boot or, with -1, in the one before.
complaints() {
  count 'I/O error|Aborting journal|EXT4-fs error|recovery complete|blocked for more than' journal "${1:-0}" -k
}
cycles() { count 'ordering cycle' journal "${1:-0}"; }
# journal BOOT [OPTION]: what was logged in a boot; fails unless it reaches back to the boot.
journal() {
  local log
  log=$(journalctl -b "$@" -o cat) || return 1
  case $log in *"Linux version"*) echo "$log" ;; *) return 1 ;; esac
}
# The file system is what it was, and takes more.
keeps_data() {
  step "$1: it is mounted" findmnt --source /dev/ublkb0
  step "$1: what was written before is there" md5sum --quiet -c /root/sums
  step "$1: it can be written" dd if=/dev/urandom of=$at/more bs=64k count=16 conv=fsync status=none
}

boot() {
  wait_for 120 systemctl is-system-running
  same "boot: the system" "$(systemctl is-system-running)" running
  note "boot: Linux $(uname -r), systemd $(systemctl --version | awk 'NR == 1 { print $2 }'), $(. /etc/os-release && echo "$PRETTY_NAME")"
  note "boot: $(systemd-analyze time | head -n 1)"
  step "boot: fstab's line is mounted" findmnt --source /dev/ublkb0
  same "boot: ordering cycles" "$(cycles)" 0
  same "boot: by-uuid link" "$(readlink -f /dev/disk/by-uuid/5f3a7c1e-0d7b-4b52-9b53-6a1d8a3f2c10)" /dev/ublkb0
  soon "boot: status says how it goes" 10 status_says "lazyftl: write amplification .*free blocks.*MB/s written"
  note "boot: status: $(of StatusText)"
  dd if=/dev/urandom of=$at/data bs=1M count=8 conv=fsync status=none
  md5sum $at/data > /root/sums
}

# A newer package while the device is in use: the daemon keeps its program until a kill, the new one reattaches the device.
program() { readlink "/proc/$(of MainPID)/exe"; }
upgrade() {
  local before restarts began
  before=$(of MainPID) restarts=$(of NRestarts)
  same "upgrade: the version before" "$(dpkg-query -W -f '${Version}' ftld)" 0.1.0-1
  step "upgrade: dpkg -i, without a question" sh -c 'dpkg -i /root/ftld.deb < /dev/null'
  note "upgrade: to $(dpkg-query -W -f '${Version}' ftld)"
  differ "upgrade: the version after" "$(dpkg-query -W -f '${Version}' ftld)" 0.1.0-1
  step "upgrade: the administrator's line is still in the configuration" grep -q "a line of the administrator" /etc/ftld/ublkb0.toml
  same "upgrade: the daemon runs on" "$(of MainPID)" "$before"
  same "upgrade: from the old program" "$(program)" "/usr/bin/ftld (deleted)"
  keeps_data "upgrade: before the kill"
  began=$(seconds)
  step "upgrade: systemctl kill -s KILL" systemctl kill -s KILL $unit
  soon "upgrade: it serves again" 60 restarted "$restarts"
  note "upgrade: from the kill to READY $(since "$began")"
  same "upgrade: from the new program" "$(program)" /usr/bin/ftld
  keeps_data "upgrade"
  same "upgrade: complaints of the kernel" "$(complaints)" 0
}

# Copies a file again and again, past the page cache, and compares every copy, until there are enough.
copies() {
  local count=0
  until [ -e /run/enough ]; do
    dd if=$at/data of="$at/$1" bs=64k count=32 oflag=direct conv=fsync status=none || return 1
    cmp -n $((32 << 16)) $at/data "$at/$1" || return 1
    count=$((count + 1))
    echo $count > "/run/$1"
  done
}
sum_of_copies() { cat /run/load1 /run/load2 2> /dev/null | awk '{ sum += $1 } END { print sum + 0 }'; }
copied() { [ "$(sum_of_copies)" -ge "$1" ]; }

kill9() {
  local restarts began before
  restarts=$(of NRestarts)
  copies load1 & local first=$!
  copies load2 & local second=$!
  soon "kill -9 under load: there is a load" 60 test -e /run/load1
  began=$(seconds)
  kill -9 "$(of MainPID)"
  before=$(sum_of_copies)
  soon "kill -9 under load: it serves again" 60 restarted "$restarts"
  note "kill -9 under load: from the kill to READY $(since "$began")"
  soon "kill -9 under load: the load goes on" 60 copied $((before + 4))
  touch /run/enough
  wait $first && wait $second
  same "kill -9 under load: the load's exit code" $? 0
  note "kill -9 under load: $(sum_of_copies) copies, all compared"
  keeps_data "kill -9 under load"
  same "kill -9 under load: complaints of the kernel" "$(complaints)" 0
}

watchdog() {
  local restarts began
  restarts=$(of NRestarts)
  kill -STOP "$(of MainPID)"
  began=$(seconds)
  soon "watchdog: a stalled daemon is replaced" 60 restarted "$restarts"
  note "watchdog: from the stall to READY $(since "$began"), limit 10 s"
  step "watchdog: that was why" sh -c "journalctl -b -u $unit -o cat | grep 'Watchdog timeout'"
  keeps_data "watchdog"
  same "watchdog: complaints of the kernel" "$(complaints)" 0
}

# A host where an unmount does not reach the unit's namespace.
private() {
  local restarts
  restarts=$(of NRestarts)
  step "private /: no propagation" mount --make-rprivate /
  kill -9 "$(of MainPID)"
  soon "private /: it serves again" 60 restarted "$restarts"
  restarts=$(of NRestarts)
  step "private /: umount" umount $at
  # Other services have copies of their own, and keep the device in use: this case is the last one of a boot.
  same "private /: mounts of it in the daemon's table" "$(grep -c ' - ext4 /dev/ublkb0 ' "/proc/$(of MainPID)/mountinfo")" 0
  kill -9 "$(of MainPID)"
  soon "private /: it serves again after another kill" 60 restarted "$restarts"
  step "private /: propagation again" mount --make-rshared /
  again "private /"
}

gone_and_clean() {
  step "$1: the device is gone" test ! -e /dev/ublkb0
  same "$1: result" "$(of Result)" success
  step "$1: clean shutdown" sh -c 'ftld check ublkb0 | grep "(clean shutdown"'
}

again() {
  step "$1: start" systemctl start $unit
  step "$1: mount" systemctl start mnt-flash.mount
  step "$1: fsck found it clean" sh -c 'journalctl -b -o cat -u systemd-fsck@dev-ublkb0.service | tail -n 2 | grep clean'
  keeps_data "$1"
  same "$1: complaints of the kernel" "$(complaints)" 0
}

stop_mounted() {
  local began
  began=$(seconds)
  step "stop, mounted but idle" systemctl stop $unit
  note "stop, mounted but idle: $(since "$began")"
  same "stop, mounted but idle: mounts" "$(mounts_of /dev/ublkb0)" 0
  gone_and_clean "stop, mounted but idle"
  again "after it"
}

stop_idle() {
  local began
  step "stop, idle: umount" umount $at
  began=$(seconds)
  step "stop, idle" systemctl stop $unit
  note "stop, idle: $(since "$began")"
  gone_and_clean "stop, idle"
  again "after it"
}

stop_busy() {
  local began sleeper
  (cd $at && exec sleep 1000) &
  sleeper=$!
  echo acknowledged > $at/unsynced
  began=$(seconds)
  systemctl stop --no-block $unit
  soon "stop, busy: status says by whom" 20 status_says "stopping; device in use: mounted on $at"
  note "stop, busy: status: $(of StatusText)"
  step "stop, busy: it is served meanwhile" dd if=$at/data of=/dev/null bs=64k count=4 iflag=direct status=none
  soon "stop, busy: ends at its time limit" 40 state_is failed
  note "stop, busy: $(since "$began"), limit 8 s"
  refused "stop, busy: the device waits" 4 "is quiesced, its daemon died" ftld stop ublkb0
  began=$(seconds)
  step "stop, busy: start takes it up" systemctl start $unit
  note "stop, busy: start takes $(since "$began")"
  same "stop, busy: what was not synced is there" "$(cat $at/unsynced)" acknowledged
  kill "$sleeper"
  keeps_data "stop, busy"
  same "stop, busy: complaints of the kernel" "$(complaints)" 0
}

nbd() {
  local uri='nbd+unix:///disk?socket=/run/ftld/disk.sock' began
  step "nbd: sockets" systemctl start ftld-nbd@disk.socket ftld-nbd-metrics@disk.socket
  same "nbd: the service before a client comes" "$(of ActiveState ftld-nbd@disk.service)" inactive
  began=$(seconds)
  same "nbd: the first client starts it" "$(nbdinfo --size "$uri")" $((8 << 20))
  note "nbd: the first answer after $(since "$began")"
  same "nbd: the service" "$(of ActiveState ftld-nbd@disk.service)" active
  step "nbd: its user is not root" test "$(stat -c %u "/proc/$(of MainPID ftld-nbd@disk.service)")" -gt 1000
  dd if=/dev/urandom of=/run/disk bs=1M count=8 status=none
  step "nbd: copy in" nbdcopy --flush /run/disk "$uri"
  step "nbd: restart" systemctl restart ftld-nbd@disk.service
  step "nbd: copy out" nbdcopy "$uri" /run/copy
  step "nbd: the same bytes" cmp /run/disk /run/copy
  rm /run/disk /run/copy
  exec 5<> /dev/tcp/127.0.0.1/9920
  printf 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&5
  same "nbd: metrics through their socket" "$(timeout 20 tail -n 1 <&5)" serving
  exec 5>&-
  step "nbd: root sees it among the instances" sh -c 'ftld list | grep disk'
  step "nbd: stop" systemctl stop ftld-nbd@disk.socket ftld-nbd-metrics@disk.socket ftld-nbd@disk.service
}

security() {
  local of
  for of in ftld@:30 ftld-nbd@:10; do
    step "security: ${of%:*}.service: exposure at most ${of#*:} tenths" systemd-analyze security --offline=yes --no-pager \
      --threshold="${of#*:}" "/usr/lib/systemd/system/${of%:*}.service"
    note "security: $(tail -n 1 /run/step.log)"
  done
  step "security: nothing in the units is unknown" systemd-analyze verify --man=no ftld@x.service ftld-nbd@x.service
}

look_back() {
  wait_for 120 systemctl is-system-running
  same "second boot: the system" "$(systemctl is-system-running)" running
  step "second boot: clean shutdown" sh -c "journalctl -b -1 -u $unit -o cat | tail -n 5 | grep -w 'clean shutdown'"
  same "second boot: the first one's ordering cycles" "$(cycles -1)" 0
  same "second boot: ordering cycles" "$(cycles)" 0
  same "second boot: the first one's complaints of the kernel" "$(complaints -1)" 0
  same "second boot: the device is there" "$(of ActiveState)" active
  same "second boot: without a mount" "$(mounts_of /dev/ublkb0)" 0
  step "second boot: mount" systemctl start mnt-flash.mount
  step "second boot: fsck found it clean" sh -c 'journalctl -b -o cat -u systemd-fsck@dev-ublkb0.service | grep clean'
  keeps_data "second boot"
  same "second boot: complaints of the kernel" "$(complaints)" 0
}

if [ ! -e /root/looked ]; then
  touch /root/looked
  for case in boot upgrade ${CASES:-kill9 watchdog stop_mounted stop_idle stop_busy nbd security}; do
    began=$(seconds)
    $case
    note "case $case: $(since "$began")"
  done
else
  look_back
fi
if [ $FAILED = 1 ]; then journalctl -b -o short-monotonic -u 'ftld*' -u mnt-flash.mount; else echo BOOT-OK; fi
# The next boot shall serve the device because the unit is enabled, not because of a mount.
sed -i 's,/mnt/flash ext4 defaults,&\,noauto,' /etc/fstab
# Somebody still sits in the file system, and goes only when everybody does.
(cd $at && exec sleep 1000) &
sleep 1
systemctl poweroff
wait
