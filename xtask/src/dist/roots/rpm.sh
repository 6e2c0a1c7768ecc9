# The steps of the RPM: $1 is its file in /dist.
rpm=/dist/$1
exec 3>&1 >/tmp/log 2>&1
trap 'code=$?; [ $code = 0 ] || { tail -40 /tmp/log >&3; echo "failed at: $step" >&3; }' EXIT
step() { step=$1; echo "== $1"; }

step "rpm is installed"
apt-get -q update
apt-get -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends rpm

step "its digests are right, and what it says of itself"
rpm --checksig --nosignature "$rpm"
[ "$(rpm -qp --queryformat '%{NAME} %{ARCH} %{LICENSE}' "$rpm")" = "dtrace-rs x86_64 MIT OR Apache-2.0" ]
rpm -qp --conflicts "$rpm" | grep -qx systemtap-sdt-dtrace
rpm -qlp "$rpm" | grep -qx /usr/bin/dtrace

step "it is installed in a directory, verified, used"
mkdir -p /tmp/root
rpm --root /tmp/root --initdb
rpm --root /tmp/root -i --nodeps --noscripts --nosignature "$rpm"
rpm --root /tmp/root -V --nodeps dtrace-rs
[ "$(/tmp/root/usr/bin/dtrace -qn 'BEGIN { printf("%d\n", 6 * 7); exit(0); }' | grep -v '^$')" = 42 ]
[ "$(readlink /tmp/root/usr/bin/iosnoop)" = ../share/dtrace/toolkit/iosnoop ]

step "a damaged one is refused"
cp "$rpm" /tmp/damaged.rpm
printf x | dd of=/tmp/damaged.rpm bs=1 seek=200000 conv=notrunc
! rpm --checksig --nosignature /tmp/damaged.rpm

step "it is erased"
rpm --root /tmp/root -e --noscripts dtrace-rs
[ -z "$(find /tmp/root/usr -name '*dtrace*')" ]
