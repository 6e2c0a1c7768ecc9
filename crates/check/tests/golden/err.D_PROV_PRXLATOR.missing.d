/* library */
typedef struct out { int o_n; } out_t;
provider stable { probe one(struct task_struct *T, int N : int N, out_t *T); };
dtrace:::BEGIN { one(curthread, 2); }
/* script */
stable:::one { trace(args[1]->o_n); }
