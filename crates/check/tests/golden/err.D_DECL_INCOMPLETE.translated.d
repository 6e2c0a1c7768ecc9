/* library */
provider stable { probe one(struct task_struct *T : struct nosuch *T); };
dtrace:::BEGIN { one(curthread); }
/* script */
stable:::one { trace(1); }
