/* library */
provider stable { probe one(struct nosuch *S : struct nosuchinfo *S); probe two(int N); };
dtrace:::BEGIN { one((struct nosuch *)curthread); two(3); }
/* script */
stable:::two { trace(args[0]); }
