#!/bin/bash
# Runs once in the root of the machine before it boots: the suite becomes a service; for systemd.sh, what an administrator would do.
set -e
# shellcheck source=/dev/null # written by run.sh
. /root/settings
cat > /etc/systemd/system/ftld-suite.service <<X
[Unit]
Description=What is tested here
[Service]
ExecStart=/bin/bash /root/$SUITE.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
X
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -s ../ftld-suite.service /etc/systemd/system/multi-user.target.wants/
echo '/dev/vda / ext4 defaults 0 1' > /etc/fstab
[ "$SUITE" = systemd ] || exit 0

dpkg -i /root/old.deb
cat >> /etc/fstab <<X
LABEL=images /var/lib/ftld ext4 defaults 0 2
/dev/ublkb0 /mnt/flash ext4 defaults 0 2
X
echo 'size = "8MiB"' > /etc/ftld/disk.toml
echo '# a line of the administrator' >> /etc/ftld/ublkb0.toml
systemctl enable ftld@ublkb0.service

# Shorter than shipped, so that the suite need not wait.
for unit in ftld@ublkb0.service ftld-nbd@disk.service; do
  mkdir -p "/etc/systemd/system/$unit.d"
  printf '[Service]\nWatchdogSec=10s\nTimeoutStopSec=8s\n' > "/etc/systemd/system/$unit.d/short.conf"
done
# The port of its own that a second instance needs.
mkdir -p /etc/systemd/system/ftld-nbd-metrics@disk.socket.d
printf '[Socket]\nListenStream=\nListenStream=127.0.0.1:9920\n' > /etc/systemd/system/ftld-nbd-metrics@disk.socket.d/port.conf
