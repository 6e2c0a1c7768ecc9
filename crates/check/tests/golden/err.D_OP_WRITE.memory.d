struct point { int x; int y; };
BEGIN {
	*(int *)0 = 1;
	*(int *)arg0 = 1;
	curthread->pid = 1;
	((struct point *)arg0)->x++;
	"abc"[0] = 'x';
	(*(struct point *)arg0) = *(struct point *)arg1;
}
