#!/bin/busybox sh
# The guest's init: this machine's root under an overlay, then the command, then off.
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for m in /mod/*; do insmod "$m" || echo "vm: insmod $m failed" >/dev/console; done
o=trans=virtio,version=9p2000.L,msize=524288
mount -t 9p -o $o,ro,cache=loose root /lower || { echo "vm: no root" >/dev/console; poweroff -f; }
mount -t tmpfs -o size=50% tmpfs /upper; mkdir /upper/u /upper/w
mount -t overlay -o lowerdir=/lower,upperdir=/upper/u,workdir=/upper/w overlay /new
for d in proc sys dev tmp run mnt/vmout; do mkdir -p /new/$d; done
mount -t proc proc /new/proc; mount -t sysfs sys /new/sys; mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts devpts /new/dev/pts; mount -t tmpfs shm /new/dev/shm
mount -t tmpfs run /new/run
mount -t tracefs tracefs /new/sys/kernel/tracing; mount -t debugfs debugfs /new/sys/kernel/debug
mount -t bpf bpf /new/sys/fs/bpf; mount -t securityfs securityfs /new/sys/kernel/security
mount -t cgroup2 cgroup2 /new/sys/fs/cgroup
ln -sf /proc/self/fd /new/dev/fd; ln -sf /proc/self/fd/0 /new/dev/stdin
ln -sf /proc/self/fd/1 /new/dev/stdout; ln -sf /proc/self/fd/2 /new/dev/stderr
mount -t 9p -o $o,cache=none out /new/mnt/vmout
mkdir -p /new/lib/modules/$(uname -r)
mount -t 9p -o $o,ro,cache=loose mods /new/lib/modules/$(uname -r)
ip link set lo up 2>/dev/null
exec chroot /new /bin/bash -c 'export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb DTRACE_IN_VM=1; bash /mnt/vmout/cmd </dev/null >/mnt/vmout/log 2>&1; rc=$?; dmesg >/mnt/vmout/dmesg 2>/dev/null; echo $rc >/mnt/vmout/rc; sync; echo o >/proc/sysrq-trigger; sleep 100'
