// mode: function
read, vmlinux:read { }
syscall:vmlinux:read
a:b:c:d
12
