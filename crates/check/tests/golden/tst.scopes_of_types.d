typedef int own_t;
struct task_struct { int mine; };
enum own { FIRST = 3 };
D`own_t g;
struct D`task_struct mine;
BEGIN {
	trace((D`own_t)-1); trace((C`int)-1); trace((C`long)arg0); trace((D`uint64_t)arg0);
	trace(sizeof (C`short)); trace(sizeof (D`own_t)); trace(sizeof (struct D`task_struct));
	trace(sizeof (struct vmlinux`task_struct) > 8);
	trace((enum D`own)3 == FIRST);
	trace(((struct D`task_struct *)arg0)->mine); trace(((D`own_t *)arg0)[1]); trace((C`char *)arg0 + 1);
	trace((C`_Bool)arg0);
	this->s = (D`string)"x";
}
