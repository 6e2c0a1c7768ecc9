typedef struct req { int id; } req_t;
provider web {
	probe start(struct req r, req_t t);
	probe real(long double x);
};
