BEGIN { @a = sum(trace(1)); @b = quantize(printf("x")); }
