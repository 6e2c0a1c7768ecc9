// set: spans
// types: foo_t
syscall::read:entry, x /pid/
{
	self->x = (foo_t *)(a + b[1]) + @[1];
	if (x) { y } else z;
}
int *a[5], b;
inline int f[int x] = -x;
translator a_t < b_t B > { m = 1; };
provider p { probe a(int); };
