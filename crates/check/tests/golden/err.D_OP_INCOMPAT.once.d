/* One error causes one message: uses of a name whose declaration failed are silent. */
inline int f[int a] = a + 1;
inline string s = 5;
u64 big;
self struct task_struct thread;
struct task_struct whole;
BEGIN { trace(f[3]); trace(s); big++; trace(big); self->thread = 1; trace(whole); }
