self int seen;
int table[string, int];
BEGIN { x++; ++x; x--; x += 3; self->seen |= 1; table["a", 2] -= 5; table[execname, 3]++; p = (long *)arg0; p++; p += 2; trace(p - (long *)arg1); y <<= 2; trace(y++); }
