inline int f[int x] = x;
BEGIN { trace(speculation()); raise(9); tracemem(0, 1); trace(`jiffies); }
BEGIN { speculate(1); }
char buf[16];
BEGIN { trace(*(struct s *)arg0); }
