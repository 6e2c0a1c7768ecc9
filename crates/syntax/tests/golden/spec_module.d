// mode: module
vmlinux, fbt:vmlinux
a:b:c { }
