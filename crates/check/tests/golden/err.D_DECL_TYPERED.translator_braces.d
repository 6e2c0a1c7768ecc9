struct from {
	int a;
} *given;

struct to {
	int b;
};

translator struct to
{
	struct from *given
}
{
	b = given->a;
}
