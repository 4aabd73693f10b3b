set -eu
case $1 in xfs) options=loop,nouuid ;; *) options=loop ;; esac
mkdir "$FTLD_WORK/mnt"
mount -t "$1" -o "$options" "$FTLD_IMAGE" "$FTLD_WORK/mnt"
rc=0
python3 churn.py check "$FTLD_WORK/mnt" || rc=$?
umount "$FTLD_WORK/mnt"
[ "$rc" = 0 ] || exit 1
case $1 in
ext4) e2fsck -fn "$FTLD_IMAGE" ;;
xfs) xfs_repair -n "$FTLD_IMAGE" ;;
btrfs) btrfs check --readonly "$FTLD_IMAGE" ;;
esac 2>&1 || { echo "the checker finds damage"; exit 1; }
