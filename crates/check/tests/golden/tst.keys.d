BEGIN { @a[execname] = count(); @a["short"] = count(); @b[probefunc] = count(); @b["x"] = count(); @c["x", execname] = count(); @c[probename, copyinstr(arg0)] = count(); }
BEGIN { @d[1] = count(); @d[timestamp] = count(); @e[(char)1, pid + 1] = quantize(arg0, 2); h[1] = 1; h[arg0] = 2; }
BEGIN { @[ustack(3), sym(arg0), umod(arg1), stack()] = avg(arg0); @[ustack(5), sym(1), umod(2), stack(7)] = avg(1); }
