int big[4097];
self char also[16385];
char fits[16384];
BEGIN { big[0] = 1; self->also[0] = 1; fits[0] = 1; }
struct huge { char c[20000]; };
BEGIN { this->p = (struct huge *)alloca(20000); *this->p = *(struct huge *)arg0; }
