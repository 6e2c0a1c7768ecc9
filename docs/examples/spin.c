/* spin [N]: computes for a while; something to look at with profile.
 *
 *     cc -O1 -g -fno-omit-frame-pointer -o spin docs/examples/spin.c
 */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static unsigned long mix(unsigned long x)
{
	for (int i = 0; i < 2000; i++)
		x = x * 6364136223846793005UL + 1442695040888963407UL;
	return x;
}

__attribute__((noinline)) static unsigned long work(unsigned n)
{
	unsigned long sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum ^= mix(i);
	return sum;
}

int main(int argc, char **argv)
{
	unsigned long sum = work(argc > 1 ? atoi(argv[1]) : 100000);

	printf("%lx\n", sum);
	return 0;
}
