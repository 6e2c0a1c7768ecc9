int big[4097];
self char also[16385];
char fits[16384];
BEGIN { big[0] = 1; self->also[0] = 1; fits[0] = 1; }
