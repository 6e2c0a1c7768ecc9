struct req { int id; };
struct other { int id; };
typedef struct reqinfo { int ri_id; } reqinfo_t;
translator reqinfo_t < struct other *R > { ri_id = 0; };
provider web {
	probe start(struct req *R, int n) : (int n, reqinfo_t *R);
};
