syscall:::entry { @a[probefunc, "x", pid, stack(), ustack(5)] = sum(arg0); @b[execname] = avg(1); }
syscall:::return { @a["y", probename, arg0, stack(), ustack()] = sum(1); @b["short"] = avg(2); @c[func(arg0), usym(arg1)] = max(arg2); }
END { printa("%s %s %d %k %k %@u\n", @a); printa(@b); clear(@a); trunc(@b, 10); normalize(@a, 1000); denormalize(@a); }
