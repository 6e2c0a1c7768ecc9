/*
 * Typed arguments of a provider that is given, a structure of the program in the kernel's memory, if and else.
 *
 * option quiet
 * probe disk sd start io struct request *, int
 * kernel 0xffff888000001000 "\0\0\0\0ABCDsda\0\0\0\0\0"
 * fire disk:::io args=0xffff888000001000,3
 * fire disk:::io args=0xffff888000001000,9
 * fire disk:::io args=0x10,3
 */
struct request { int flags; char id[4]; char name[8]; };
disk:::io
{
	this->r = (struct request *)arg0;
	if (args[1] > 5) {
		printf("many: %d\n", args[1]);
	} else {
		printf("%s %c %d\n", stringof(this->r->name), this->r->id[2], this->r->flags);
	}
}
