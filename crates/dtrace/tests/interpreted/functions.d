/*
 * Every aggregating function, and what changes them before they are printed.
 *
 * option quiet
 * option aggsortkey
 * fire syscall::read:entry args=1
 * fire syscall::read:entry args=100
 * fire syscall::read:entry args=-7
 * fire syscall::read:entry args=5
 */
syscall::read:entry
{
	@min = min((int)arg0); @max = max((int)arg0); @avg = avg((int)arg0); @dev = stddev((int)arg0);
	@sum = sum((int)arg0); @ll = llquantize((int)arg0, 10, 0, 3, 10);
	@k[(int)arg0] = sum(1000);
}
END
{
	printa("%@d ", @min); printa("%@d ", @max); printa("%@d ", @avg); printa("%@d ", @dev); printa("%@d\n", @sum);
	normalize(@k, 10); trunc(@k, 3);
	printa("%d: %@d\n", @k);
	denormalize(@k); printa(@k);
	clear(@sum); trunc(@min); trunc(@max); trunc(@avg); trunc(@dev); trunc(@k); trunc(@sum);
}
