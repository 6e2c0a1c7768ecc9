struct s { char v[0x1ffffffffffffff8]; int b : 3; int c : 31; int d : 31; }; BEGIN { trace(sizeof(struct s)); }
