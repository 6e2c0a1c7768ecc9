struct req { int id; };
typedef struct reqinfo { int ri_id; } reqinfo_t;
provider web {
	probe start(struct req *R) : (reqinfo_t *R);
};
