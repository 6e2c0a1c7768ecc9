BEGIN { @a = quantize(arg0); @b = lquantize(arg0, -10, 100, 5, 2); @b = lquantize(arg0 + 1, -10, 100, 5); @c = llquantize(arg0, 10, 0, 6, 20, pid); @d = stddev(arg0); @e = lquantize(arg0, 0, 10); }
