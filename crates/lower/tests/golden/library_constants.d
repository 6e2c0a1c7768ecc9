/* library */
provider stable { probe one(int n); probe two(int n); probe never(int n); };
inline int is_there = defined(syscall::read:entry);
inline int is_not = defined(syscall::nosuch:entry);
self int kept;
syscall::read:entry { one(is_there ? 3 : *(int *)4); }
syscall::read:entry { two(is_not ? *(int *)5 : 6); }
syscall::read:entry /is_not || defined(syscall::nosuch:entry)/ { self->kept = *(int *)7; two(self->kept); }
syscall::read:entry /0/ { one(*(int *)8); }
syscall::read:entry /is_there && 1/ { one(9); }
syscall::nosuch:entry { never(*(int *)10); }
/* script */
stable:::one { trace(arg0); }
stable:::two { trace(arg0); }
