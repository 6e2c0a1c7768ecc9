BEGIN { @a = lquantize(1, pid, 10); }
