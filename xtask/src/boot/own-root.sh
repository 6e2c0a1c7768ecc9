#!/bin/busybox sh
# Process 1 in the root of an initramfs of our own.
/bin/busybox --install -s /bin
PATH=/bin:/usr/sbin
i=0; while [ $i -lt 20 ]; do /known-after; i=$((i + 1)); done
tracer=$(pidof dtrace @dtrace)
echo "@process $(tr '\0' ' ' </proc/$tracer/cmdline)"
echo "@boots $(cut -d' ' -f1 /etc/dtrace/anonymous.d/boots)"
echo "@memory $(sed -n 's/^VmHWM:[^0-9]*//p' /proc/$tracer/status)"
for word in claim again; do
	echo "@begin $word"
	dtrace -ae 2>&1
	echo "@end $word $?"
done
poweroff -f
