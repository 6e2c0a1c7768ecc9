BEGIN { trace(strlen(1)); trace(copyinstr("x")); a[1] = 1; a["x"] = 2; exit(execname); @a[1] = count(); @a[execname] = count(); }
