#!/bin/sh
[ "$1" != prereqs ] || exit 0
cp /usr/local/bin/known-before "$DESTDIR/usr/bin/"
