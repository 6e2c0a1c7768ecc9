typedef struct big { char v[0xffffffff]; } big_t; BEGIN { tracemem(0, sizeof(big_t) * 0x10000000); }
