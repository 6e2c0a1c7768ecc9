#!/bin/sh
# What the machine does when it is up, by a word on its kernel's command line.
state() {
	tracer=$(pidof dtrace) && echo "@memory $(sed -n 's/^VmHWM:[^0-9]*//p' "/proc/$tracer/status")"
	# Ticks in user and kernel mode: of the tracer, and of the machine since the kernel began.
	[ -z "$tracer" ] || echo "@cpu $(cut -d' ' -f14,15 "/proc/$tracer/stat") $(sed -n 's/^cpu  //p' /proc/stat)"
	echo "@boots $(cut -d' ' -f1 /etc/dtrace/anonymous.d/boots 2>/dev/null)"
	dmesg | sed -n 's/^.*dtrace: /@log /p'
	journalctl -b -q --no-pager -o cat -t dtrace | sed 's/^/@log /'
}
case "$(cat /proc/cmdline)" in
*test=claim*)
	state
	for word in claim again; do
		echo "@begin $word"
		dtrace -ae 2>&1
		echo "@end $word $?"
	done
	;;
*test=leave*) state ;;
esac
systemctl --no-block poweroff
