# Process 1 of a pid namespace: the root of an initramfs, then the root of a system. DIRECTORY DTRACE.
# It does what `switch_root` does, with file systems in memory: those of programs are this machine's own.
set -e
place=$1 dtrace=$2
root() { # DIRECTORY: this machine's programs, and no other of its files
	cd "$1"
	for dir in bin lib lib64 sbin usr; do
		if [ -h "/$dir" ]; then
			cp -P "/$dir" .
		elif [ -d "/$dir" ]; then
			mkdir "$dir"
			mount --bind "/$dir" "$dir"
		fi
	done
	mkdir -p proc sys dev run tmp var/lib etc program
	: >program/dtrace
	mount --bind "$2" program/dtrace
	for name in @BEFORE@ @AFTER@; do
		printf '#!/bin/sh\nexit 0\n' >"$name"
		chmod 755 "$name"
	done
	chmod 755 . etc var var/lib
}
case $0 in
*/boot.sh)
	mkdir "$place/initramfs"
	mount -t tmpfs initramfs "$place/initramfs"
	chmod 755 "$place/initramfs"
	root "$place/initramfs" "$dtrace"
	mount -t proc proc proc
	mount --rbind /sys sys
	mount --rbind /dev dev
	mount -t tmpfs -o mode=755 run run
	cp "$0" init
	chroot . /program/dtrace -A -q -n '@PROGRAM@' 2>&1
	echo "@roots"
	exec chroot . /bin/sh /init
	;;
/init)
	/program/dtrace --anonymous-start
	i=0; while [ $i -lt 20 ]; do /@BEFORE@; i=$((i + 1)); done
	mkdir new
	mount -t tmpfs root new
	root /new /program/dtrace
	cp -a /etc/dtrace etc/
	cp /init real
	for dir in proc sys dev run; do mount -n --move "/$dir" "$dir"; done
	mount -n --move . /
	exec chroot . /bin/sh /real
	;;
/real)
	i=0; while [ $i -lt 20 ]; do /@AFTER@; i=$((i + 1)); done
	set +e
	dtrace=/program/dtrace
	echo @claim; $dtrace -ae 2>&1; echo "@status $?"
	echo @again; $dtrace -ae 2>&1; echo "@status $?"
	echo "@boots $(cut -d" " -f1 /etc/dtrace/anonymous.d/boots)"
	# As two boots that did not come up would have it.
	echo 2 another >/etc/dtrace/anonymous.d/boots
	echo @third; $dtrace --anonymous 2>&1; echo "@status $?"
	echo @disabled; ls /etc/dtrace/anonymous.d; echo "@status $?"
	echo @why; $dtrace -ae 2>&1; echo "@status $?"
	;;
esac
