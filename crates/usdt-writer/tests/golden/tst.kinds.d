/* a test ??= */
typedef struct req { int id; char *path; } req_t;
typedef struct reqinfo { int ri_id; string ri_path; } reqinfo_t;
typedef unsigned short port_t;
translator reqinfo_t < req_t *R > {
	ri_id = *(int *)copyin((uintptr_t)&R->id, 4);   // with a comment
	ri_path = copyinstr((uintptr_t)R->path);
};
provider webby {
	probe start(int a, const char *s);
	probe request__done(req_t *R, uint8_t c, int64_t n) : (reqinfo_t *R, int64_t n);
	probe none();
	probe many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l);
	probe kinds(char c, unsigned char uc, short s, port_t us, int i, unsigned u, long l, size_t z, float f, double d, string st, _Bool b);
	probe odd(widget_t w, enum color e);
};
#pragma D attributes Evolving/Evolving/Common provider webby provider
#pragma D attributes Private/Private/Unknown provider webby args
