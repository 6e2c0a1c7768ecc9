BEGIN { printf("Hello World!\n"); exit(0); }
profile-997hz /arg1/ { @p[pid, execname] = count(); }
profile-997hz /arg0/ { @f[func(arg0)] = count(); }
syscall::openat:entry /execname == "cat"/ { @o[copyinstr(arg1)] = count(); }
syscall::write:entry { @writes[execname] = count(); }
tick-1s { printa("dtrace.%s.write %@u", @writes); printf(" %lli\n", walltimestamp / 1000000000); clear(@writes); }
syscall:::entry /pid == 123/ { @c[probefunc] = count(); }
syscall::getppid:entry { trace(timestamp); @ = count(); }
ERROR { printf("%d %d %d", arg1, arg2, arg4); }
