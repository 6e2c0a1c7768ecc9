BEGIN {
	trace((int)`untyped); trace((uint8_t)vmlinux`untyped); trace(*(long *)&`untyped);
	trace((string)`untyped); trace(stringof(&`untyped)); trace((uintptr_t)&`untyped);
	trace(((struct task_struct *)`untyped)->pid); printf("%p %a", &`untyped, &`untyped);
	trace(*(struct list_head *)&`untyped); this->p = &`untyped; trace(this->p == 0);
	trace((int)`jiffies);
}
