# lintian on the package $1 in /dist.
exec 3>&1 >/tmp/log 2>&1
trap 'code=$?; [ $code = 0 ] || tail -60 /tmp/log >&3' EXIT
apt-get -q update
apt-get -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends lintian
useradd -m lint
cp "/dist/$1" /home/lint/
: >/tmp/log
su lint -c "cd && lintian --fail-on error,warning --display-info --show-overrides '$1'"
cat /tmp/log >&3
