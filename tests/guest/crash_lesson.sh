# shellcheck shell=dash
# The programs of docs/CRASH_TESTING.md on /dev/ublkb0: the kernel writes back what the careless ledger has not synced in an order of
# its own. States are explored by an ordinary user.
# shellcheck source=tests/lib.sh
. /bin/lib.sh
export SCRATCH=/tmp TMPDIR=/tmp
echo "nobody:x:65534:65534::/tmp:/bin/sh" >> /etc/passwd
echo "nogroup:x:65534:" >> /etc/group
cd /tmp || finish

# lesson NAME WANTED OPTION...: records a ledger of six orders, and explores it.
lesson() {
  name=$1 wanted=$2
  shift 2
  serve --size 64MiB --image "/var/lib/ftld/$name.ftld" --record "/tmp/$name.rec" /dev/ublkb0 || finish
  step "$name: recorded" env FTLD_NAME=ublkb0 python3 /bin/ledger.py run /dev/ublkb0 6 "$@"
  step "$name: stop" ftld stop ublkb0
  chmod 644 "/tmp/$name.rec"
  rc=0
  su -s /bin/sh nobody -c "ftld crashes /tmp/$name.rec --check 'python3 /bin/ledger.py check \$FTLD_IMAGE'" > "/tmp/$name.out" 2>&1 || rc=$?
  same "$name: exit code" $rc "$wanted"
  note "$name: $(grep 'states,' "/tmp/$name.out")"
}
lesson careless 1 careless
step "careless: what is wrong" grep -q "but order [0-9] is missing" /tmp/careless.out
lesson careful 0
finish
