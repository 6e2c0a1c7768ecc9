syscall::openat:entry { trace(copyinstr(args[1])); }
