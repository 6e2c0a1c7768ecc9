BEGIN { @a = lquantize(1, 0, 10, pid); @b = lquantize(1, 0, 10, 0); }
