BEGIN
{
	a = 1; b = 1L; c = 0x80000000; d = 'ab'; e = (char)300; f = -1U;
	g = 1 << 33; h = (1 << 33) >> 33; i = 2147483647 + 1;
	j = (char)arg0 + (char)arg1; k = (unsigned int)arg0 / pid; l = -7 % 3;
	m = (long)(uid * uid); n = (short)pid; o = !pid; p = pid ^^ uid; q = ~0U;
	r = sizeof ("abc"); s = sizeof (string); t = sizeof (long); u = 7 / -2;
}
