#!/bin/busybox sh
# First process of the guest that `cargo xtask vm` boots. Its root is the host's file system: read only, with
# a layer in memory above it, so that the guest may write anywhere and the host sees nothing of it.
bb=/bin/busybox

fail() {
    echo "vm-init: $1"
    $bb reboot -f
}

$bb mkdir -p /proc /sys /dev /host /layer /root
$bb mount -t proc proc /proc
$bb mount -t sysfs sys /sys
$bb mount -t devtmpfs dev /dev

while read -r module; do
    $bb insmod "/modules/$module" || fail "module $module"
done </modules/order

$bb mount -t virtiofs -o ro host /host || fail "the host's file system"
$bb mount -t tmpfs layer /layer || fail "memory"
$bb mkdir /layer/upper /layer/work
$bb mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /root ||
    fail "the layer above it"

for dir in proc sys dev; do
    $bb mount --move "/$dir" "/root/$dir"
done
$bb mkdir -p /root/dev/shm /root/dev/pts
$bb mount -t tmpfs shm /root/dev/shm
$bb mount -t devpts devpts /root/dev/pts
$bb mount -t tracefs tracefs /root/sys/kernel/tracing
$bb mount -t debugfs debugfs /root/sys/kernel/debug
$bb ip link set lo up

$bb cp /command /root/.vm-command
$bb chroot /root /bin/sh /.vm-command </root/dev/null
echo "vm-exit: $?"
$bb reboot -f
