/* library */
provider stable { probe one(struct nosuch *S, int N); probe two(int N); };
dtrace:::BEGIN { one((struct nosuch *)curthread, 2); two(3); }
/* script */
stable:::one { trace(args[1]); }
