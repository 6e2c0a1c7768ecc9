/* The kernel only declares this type, and no loaded module defines it. */
BEGIN {
	trace(curthread->mm->pgd);
	trace(sizeof (struct mm_struct));
	trace(offsetof(struct mm_struct, pgd));
	trace(sizeof (*curthread->mm));
}
