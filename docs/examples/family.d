#!/usr/sbin/dtrace -qs
/* family.d: a process and its parent, by a translator of our own. */

struct family { int id; int parent; string name; long state; };
translator struct family < struct task_struct *T > {
	id = T->tgid;
	parent = T->real_parent->tgid;
	name = stringof(T->comm);
	state = defined(struct task_struct, __state) ? T->__state : T->state;
};
inline struct family *me = xlate <struct family *> (curthread);
BEGIN
{
	printf("%s runs: %d\n", me->name, me->state == 0);
	printf("its parent: %s\n", xlate <struct family> (curthread->real_parent).name);
	exit(0);
}
