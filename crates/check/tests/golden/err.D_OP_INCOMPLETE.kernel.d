/* The kernel only declares it; no module that is loaded defines it. */
BEGIN {
	trace(curthread->mm->pgd);
	trace(sizeof (struct mm_struct));
	trace(offsetof(struct mm_struct, pgd));
	trace(sizeof (*curthread->mm));
}
