BEGIN
{
	if (x) y = 1;
	if (x) { y = 1; z } else y = 2;
	if (x) if (y) a; else b;
	if (x) ; else if (y) { } else { if (z) w }
	;;
	if (x == 1 / 2) { }
}
syscall:::entry /x/ { if (1) { trace(1); } trace(2); }
