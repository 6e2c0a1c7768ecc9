inline int f[int x] = x;
BEGIN { raise(9); tracemem(0, 1); trace(`jiffies); }
BEGIN { panic(); }
char buf[16];
BEGIN { trace(*(struct s *)arg0); }
