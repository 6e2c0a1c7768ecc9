BEGIN { trace(strlen()); trace(copyinstr()); a[1] = 1; a[1, 2] = 3; exit(); printf(); trace(1, 2); @a[1] = count(); @a = count(); @b = count(1); }
