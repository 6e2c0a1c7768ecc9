BEGIN { trace(strlen()); trace(copyinstr()); a[1] = 1; a[1, 2] = 3; exit(); printf(); trace(1, 2); @a[1] = count(); @a = count(); @b = count(1); }
END { @c = lquantize(1, 2); @d = lquantize(1, 0, 10, 1, 1, 1); @e = llquantize(1, 10, 0, 3); @f = stddev(); @g = quantize(1, 2); }
