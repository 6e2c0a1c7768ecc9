# Makes a root of Debian a machine that boots and is traced: ROOT VERSION PROGRAM...
set -e
root=$1 version=$2
shift 2
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
inside() {
	chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 "$@"
}
inside update-initramfs -c -k "$version"
inside dtrace -A -x initramfs "$@"
