syscall::read:return
/execname == "cat" && (arg0 > 0 || errno != 0) ^^ !pid/
{
	x = arg0 > 10 ? "big" : execname;
	y = -1U;
	y >>= 3;
	n[pid, x]++;
	n[pid, x] = 0;
	trace(x);
	trace((char)(arg0 * 3));
}
