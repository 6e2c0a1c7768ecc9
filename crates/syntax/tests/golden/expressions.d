// types: foo_t struct_t mod`ty
BEGIN
{
	a = b = c + d * e - f % g / h;
	a << 1 + 2 >> 3 < 4 == 5 & 6 ^ 7 | 8 && 9 ^^ 10 || 11;
	a || b && c ^^ d;
	a ? b, c : d ? e : f;
	a ? x = 1 : 0;
	a += 1, b -= 2, c *= 3, d /= 4, e %= 5, f <<= 6, g >>= 7, h &= 8, i |= 9, j ^= 10;
	-a + +b - !c * ~d;
	*p++; ++*p; (*p)++; --p; p--; &x; &`sym; &mod`sym; *&p;
	- -a; !!a; - --a;
	self->x = this->y; self->a[1, "k"] = 2; this->s.m = 3; self->p->q.r[3]->probe++;
	args[0]->b_flags; args[1]->string; x.self; x.translator.counter;
	(int)x; (unsigned long long)-x; (char *)arg0; (struct foo *)arg1; (struct mod`foo *)arg1; (string)arg0;
	(foo_t)x; (foo_t *)x; (foo_t *)*x; (mod`ty **)x; (const foo_t *)x; (foo_t const *)x;
	(unknown_t *)x; (unknown_t)x; (unknown_t)"s"; (uint64_t)x + 1; (uint64_t)(x + 1); (foo_t[])x; (char [4])x;
	(foo_t == 1); (foo_t * 2); (foo_t); (x) + 1; (x)(1); (foo_t) - 1; (int (*)(char, ...))x; (foo_t (*)(int))x;
	sizeof x; sizeof (x); sizeof (int); sizeof (foo_t *); sizeof (struct foo); sizeof x->y; sizeof (x)->y; sizeof "abc";
	sizeof (unknown_t *); sizeof sizeof x; sizeof (int) * 2;
	stringof x; stringof(x->y); stringof (x)->y; stringof x + 1;
	offsetof(struct foo, bar); offsetof(foo_t, string); offsetof(unknown_t, x);
	xlate <psinfo_t> (curthread).pr_pid; xlate <struct out *> (x)->y;
	defined(struct foo, a.b.string) ? defined(unknown_t *) : defined (foo_t, x); x.defined; defined;
	printf("%d\n", 1, f(), g(a, (b, c)));
	@a[1, "x", stack(5)] = lquantize(x, 0, 10, 1);
	printa("%d", @a, @); @a[1][2] = count();
	x[1][2]; x[1, 2]; f(1)(2); "s"[0];
	self; this; a.b.c->d;
	return(1);
	1 ? 2 : 3;
	(a = 1, b);
	((((a))));
	a\
 = 2;
	9p`sym; `sym; a`b`c;
}
BEGIN /(x = 1, y), x++ && a[1 / 2] / 3/ { }
