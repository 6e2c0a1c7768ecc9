# The steps of the Debian package: $1 is its file in /dist. Runs with -e; messages on descriptor 3.
deb=/dist/$1
exec 3>&1 >/tmp/log 2>&1
trap 'code=$?; [ $code = 0 ] || { tail -40 /tmp/log >&3; echo "failed at: $step" >&3; }' EXIT
step() { step=$1; echo "== $1"; }

apt_get() { apt-get -q -y -o Dpkg::Use-Pty=0 "$@"; }
ours() { [ "$(head -c 4 /usr/bin/dtrace | od -An -tx1)" = " 7f 45 4c 46" ]; }
# Every file but those of dpkg and apt themselves.
files() {
	find / -xdev \( -path /tmp -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/log -o -path /dist -o -path /run \
		-o -name '*-' -o -name '.pwd.lock' \) -prune -o -print | sort
}
traces() { [ "$(dtrace -qn 'BEGIN { printf("%d\n", 6 * 7); exit(0); }' | grep -v '^$')" = 42 ]; }

step "the lists are read"
apt_get update
apt_get install --no-install-recommends adduser
files >/tmp/before
cp /etc/group /tmp/group

step "the package is installed on a new system"
apt_get install "$deb"
ours
traces
dpkg --verify dtrace-rs
getent group dtrace

step "the toolkit is on PATH, with pages"
[ "$(command -v iosnoop)" = /usr/bin/iosnoop ]
iosnoop -h | grep -q '^usage: iosnoop'
iotop-dtrace -h | grep -q '^usage:'
[ "$(readlink /usr/share/man/man1/iosnoop.1.gz)" = dtrace-toolkit.1.gz ]
[ -s /usr/share/man/man1/dtrace-toolkit.1.gz ]

step "it is installed again over itself"
apt_get install --reinstall "$deb"
ours
[ "$(dpkg-divert --list '*dtrace*' | wc -l)" = 2 ]

step "nothing is left when it is purged"
apt_get purge dtrace-rs
files >/tmp/after
diff /tmp/before /tmp/after
grep -v "^dtrace:" /etc/group | diff /tmp/group -
[ -z "$(dpkg-divert --list '*dtrace*')" ]

step "systemtap-sdt-dev is there first: its program steps aside, and comes back"
apt_get install --no-install-recommends systemtap-sdt-dev
dpkg -S /usr/bin/dtrace | grep -q '^systemtap-sdt-dev:'
sum=$(md5sum </usr/bin/dtrace)
apt_get install "$deb"
ours
traces
[ "$(md5sum </usr/bin/dtrace.systemtap)" = "$sum" ]
[ -e /usr/include/sys/sdt.h ] || [ -e /usr/include/x86_64-linux-gnu/sys/sdt.h ]
printf 'provider app { probe start(int); };\n' >/tmp/app.d
dtrace -h -s /tmp/app.d -o /tmp/app.h
grep -q APP_START /tmp/app.h
apt_get remove dtrace-rs
[ "$(md5sum </usr/bin/dtrace)" = "$sum" ]
dpkg --verify systemtap-sdt-dev
apt_get purge dtrace-rs systemtap-sdt-dev

step "systemtap-sdt-dev comes later, and goes"
apt_get install "$deb"
apt_get install --no-install-recommends systemtap-sdt-dev
ours
[ "$(md5sum </usr/bin/dtrace.systemtap)" = "$sum" ]
dpkg --verify dtrace-rs
apt_get purge systemtap-sdt-dev
ours
traces

step "Oracle's package replaces it, and is replaced by it"
apt_get install /dist/oracle.deb
[ "$(dtrace)" = oracle ]
[ ! -e /usr/bin/dtrace ]
apt_get install "$deb"
ours
traces
[ ! -e /usr/sbin/dtrace ]
apt_get purge dtrace-rs dtrace

step "nothing is left of all that"
apt_get autoremove --purge
grep -v "^dtrace:" /etc/group | diff /tmp/group -
[ -z "$(dpkg-divert --list '*dtrace*')" ]
[ -z "$(find /usr /etc /var/lib -xdev -name '*dtrace*' -not -path '/var/lib/apt/*')" ]
