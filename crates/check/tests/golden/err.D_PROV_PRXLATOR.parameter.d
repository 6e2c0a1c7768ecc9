/* library */
provider stable { probe one(int A, int B : int A, int C); };
dtrace:::BEGIN { one(1, 2); }
/* script */
stable:::one { trace(args[1]); }
