# shellcheck shell=dash disable=SC2317 # each stack is called by its name
# No daemon holds a file system that it does not need: not that of its own device, nor one on a device that is stacked on it, nor
# another disk's. With `/` private, where an unmount reaches no other namespace, and shared. `ftld stop` names what is stacked on
# the device; its commands release it.
# shellcheck source=tests/lib.sh
. /bin/lib.sh
export DM_DISABLE_UDEV=1 MDADM_NO_UDEV=1
for tool in pvcreate vgcreate lvcreate vgchange; do ln -sf lvm /bin/$tool; done
mkdir -p /etc/lvm /other /run/lvm
cat > /etc/lvm/lvm.conf << X
devices { obtain_device_list_from_udev = 0 use_devicesfile = 0 }
backup { archive = 0 backup = 0 }
X
echo "a key of the test" > /tmp/key
for module in dm-mod dm-crypt loop md-mod raid1 xts; do
  [ ! -e /bin/$module.ko ] || step "insmod $module" insmod /bin/$module.ko || finish
done

# Each prepares a device and sets TOP to what is mounted.
plain() { TOP=$1; }
partition() {
  printf 'o\nn\np\n1\n\n\nw\n' | fdisk "$1" > /dev/null 2>&1
  TOP=${1}p1
  wait_for 5 [ -b "$TOP" ]
}
lvm_on() {
  pvcreate -q -y "$1" && vgcreate -q vg "$1" && lvcreate -q -y -Wn -l 100%FREE -n t vg
  TOP=/dev/mapper/vg-t
}
lvm_on_partition() { partition "$1" && lvm_on "$TOP"; }
md() {
  mdadm --create /dev/md0 --run --force --level=1 --raid-devices=1 --metadata=1.2 "$1"
  TOP=/dev/md0
}
loop() { losetup /dev/loop0 "$1"; TOP=/dev/loop0; }
luks() {
  cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 "$1" /tmp/key &&
    cryptsetup open --key-file /tmp/key "$1" locked
  TOP=/dev/mapper/locked
}
# held_as STACK: what `ftld stop` says of it.
held_as() {
  case $1 in
  lvm_on | lvm_on_partition) echo "held by vg-t (dm-0), mounted on /mnt; release it with \`umount /mnt\`, then \`vgchange -an vg\`" ;;
  md) echo "held by md0, mounted on /mnt; release it with \`umount /mnt\`, then \`mdadm --stop /dev/md0\`" ;;
  loop) echo "held by loop0, mounted on /mnt; release it with \`umount /mnt\`, then \`losetup -d /dev/loop0\`" ;;
  luks) echo "held by locked (dm-0), mounted on /mnt; release it with \`umount /mnt\`, then \`cryptsetup close locked\`" ;;
  *) echo "in use: mounted on /mnt; release it with \`umount /mnt\`" ;;
  esac
}

# pinned MAJOR:MINOR: processes whose mount tables have this device, one for each namespace. Not even a daemon's may.
pinned() {
  local table namespace
  grep -lE "^[0-9]+ [0-9]+ $1 " /proc/[0-9]*/mountinfo 2> /dev/null | while read -r table; do
    namespace=$(readlink "${table%mountinfo}ns/mnt") || continue # this very grep
    echo "$namespace ${table%/mountinfo} $(cat "${table%mountinfo}comm")"
  done | sort -u -k 1,1
}
is_free() { [ -n "$1" ] && [ -r /proc/1/mountinfo ] && [ -z "$(pinned "$1")" ]; }
# freed NAME MAJOR:MINOR
freed() { if is_free "$2"; then ok "$1"; else bad "$1: $(pinned "$2")"; fi; }
number_of() { stat -c '%t %T' "$1" | while read -r major minor; do echo $((0x$major)):$((0x$minor)); done; }
# dead PID: it has ended, waited for or not. One that hangs in the kernel has not.
dead() { case $(sed 's/.*) //' "/proc/$1/stat" 2> /dev/null) in "" | Z*) return 0 ;; *) return 1 ;; esac }
# hanging: programs that wait in the kernel, out of reach of every signal.
hanging() {
  local stat
  for stat in /proc/[0-9]*/stat; do
    case $(sed 's/.*) //' "$stat" 2> /dev/null) in D*) [ ! -s "${stat%stat}cmdline" ] || tr '\0' ' ' < "${stat%stat}cmdline" ;; esac
  done
}
nothing_hangs() { [ -z "$(hanging)" ]; }
# kill_and_reattach NAME DEVICE IMAGE: from a shell that works on the file system, as its user may.
kill_and_reattach() {
  kill -9 "$FTLD" || bad "$1: there is no daemon to be killed"
  wait_for 10 dead "$FTLD" || { bad "$1: the killed daemon does not end"; hanging; finish; }
  wait "$FTLD" 2> /dev/null
  cd /mnt || bad "$1: /mnt is gone"
  serve --image "$3" "$2" || { hanging; finish; }
  cd /
}
# releases NAME: runs the commands that the last refused stop printed.
releases() {
  # shellcheck disable=SC2016 # quotes of the message
  grep -o 'release it with .*; it is flushed' "$SCRATCH/step.log" | grep -o '`[^`]*`' | tr -d '`' > /tmp/commands
  step "$1: its commands" sh -e /tmp/commands || { cat /tmp/commands; finish; }
}

# round ROOT STACK DEVICE
round() {
  local name="$1 /, $2 on ${3#/dev/}" image=/var/lib/ftld/$2.ftld number kill=0
  serve --size 64MiB --image "$image" "$3" || finish
  "$2" "$3" > /tmp/stack.log 2>&1
  [ -b "$TOP" ] || { cat /tmp/stack.log; give_up "$name: there is no $TOP"; }
  number=$(number_of "$TOP")
  step "$name: mkfs" mkfs.ext4 -q -F -O ^has_journal "$TOP" || finish
  step "$name: mount" mount -t ext4 "$TOP" /mnt || finish
  ! is_free "$number" || bad "$name: the mount of $number is in no table"
  while [ $kill -lt "$KILLS" ]; do
    kill=$((kill + 1))
    echo "$kill" > /mnt/file
    sync
    kill_and_reattach "$name" "$3" "$image"
    same "$name: after kill $kill, the file" "$(cat /mnt/file)" $kill
  done
  same "$name: mount namespaces with $number" "$(pinned "$number" | grep -c .)" 1
  refused "$name: stop" 7 "$(held_as "$2")" ftld stop "${3#/dev/}"
  releases "$name"
  freed "$name: no mount table has it" "$number"
  if [ "$2" = lvm_on ]; then
    # A stop waits already; so this is a daemon that was killed once nobody used its device.
    kill_and_reattach "$name, released" "$3" "$image"
    step "$name: stop" ftld stop "${3#/dev/}"
  fi
  soon "$name: the daemon ends" 10 dead "$FTLD" || { hanging; finish; }
  wait "$FTLD"
  same "$name: its exit code" $? 0
  rm "$image"
  soon "$name: nothing hangs" 10 nothing_hangs || hanging
}

# unrelated ROOT: a disk that was mounted when another's daemon started, and a file system in memory.
unrelated() {
  local first number
  serve --size 64MiB --image /var/lib/ftld/first.ftld /dev/ublkb2 || finish
  first=$FTLD
  step "$1 /: mkfs of ublkb2" mkfs.ext4 -q -F /dev/ublkb2
  step "$1 /: mount of ublkb2" mount -t ext4 /dev/ublkb2 /other
  mkdir -p /other/below
  step "$1 /: a mount below" mount -t tmpfs inner /other/below
  number=$(number_of /dev/ublkb2)
  serve --size 64MiB --image /var/lib/ftld/second.ftld /dev/ublkb3 || finish
  umount /other/below
  step "$1 /: umount of ublkb2" umount /other
  freed "$1 /: the other daemon has no mount of ublkb2" "$number"
  step "$1 /: stop of the one that was mounted" ftld stop ublkb2
  soon "$1 /: its daemon ends" 10 dead "$first"
  # The file system with the image is in use, and its unmount says so.
  mount -t tmpfs images /other
  quit "$1 /: the other"
  serve --size 64MiB --image /other/third.ftld /dev/ublkb3 || finish
  refused "$1 /: unmounting the image" 1 "busy" umount /other
  quit "$1 /: the third"
  step "$1 /: unmounting what had the image" umount /other
}

[ "${STACKED:-few}" = all ] || KILLS=1
for root in private shared; do
  mount --make-r$root / || bad "mount --make-r$root"
  unrelated $root
  case ${STACKED:-few}-$root in
  all-*) stacks="plain partition lvm_on lvm_on_partition md loop luks" nbd=$stacks ;;
  few-private) stacks="lvm_on md luks" nbd="loop" ;;
  *) stacks="lvm_on_partition" nbd="" ;;
  esac
  for stack in $stacks; do round $root "$stack" /dev/ublkb0; done
  for stack in $nbd; do round $root "$stack" /dev/nbd0; done
done

note "a namespace with nobody else in it"
mount --make-rprivate /
serve --size 64MiB --image /var/lib/ftld/alone.ftld /dev/ublkb0 || finish
mkfs.ext4 -q -F /dev/ublkb0 && mount -t ext4 /dev/ublkb0 /mnt
kill -9 "$FTLD"
wait "$FTLD" 2> /dev/null
unshare -m ftld --metrics off --image /var/lib/ftld/alone.ftld /dev/ublkb0 > /tmp/alone.out 2>&1 &
FTLD=$!
wait_for 60 is_ready /tmp/alone.out || { cat /tmp/alone.out; give_up "alone: no ready line"; }
number=$(number_of /dev/ublkb0)
step "alone: umount" umount /mnt
freed "alone: no mount table has it" "$number"
kill -9 "$FTLD"
soon "alone: the killed daemon ends" 10 dead "$FTLD" || finish
wait "$FTLD" 2> /dev/null
serve --image /var/lib/ftld/alone.ftld /dev/ublkb0 || finish
quit "alone"

# Another namespace keeps its own copy; the stop says where, and how to release it.
serve --image /var/lib/ftld/alone.ftld /dev/ublkb0 || finish
mount -t ext4 /dev/ublkb0 /mnt
unshare -m sleep 1000 &
other=$!
sleep 1
umount /mnt
refused "another namespace" 7 "mounted on /mnt in the mount namespace of process $other (sleep); release it with \`nsenter -t $other -m umount /mnt\`" ftld stop ublkb0
releases "another namespace"
soon "another namespace: the daemon ends" 10 dead "$FTLD"
kill $other
finish
