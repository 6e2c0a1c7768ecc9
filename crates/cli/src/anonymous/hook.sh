#!/bin/sh
# Made by `dtrace -A -x initramfs`; the next `dtrace -A` replaces or removes it.
# It copies what traces the boot, and nothing if that is gone.
[ "$1" != prereqs ] || exit 0
[ -x @PROGRAM@ ] && [ -d /etc/dtrace/anonymous.d ] || exit 0
# How many boots have failed is known to the root alone, so that is not copied.
mkdir -p "$DESTDIR/usr/sbin" "$DESTDIR/etc/dtrace" && mkdir -m 700 -p "$DESTDIR/etc/dtrace/anonymous.d" &&
	cp -L @PROGRAM@ "$DESTDIR/usr/sbin/dtrace" &&
	cp -p /etc/dtrace/anonymous.d/enabling "$DESTDIR/etc/dtrace/anonymous.d/enabling" || {
	echo "W: dtrace: this initramfs does not trace the boot" >&2
	rm -rf "$DESTDIR/etc/dtrace/anonymous.d"
}
exit 0
