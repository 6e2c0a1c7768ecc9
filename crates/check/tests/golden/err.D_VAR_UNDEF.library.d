/* library */
provider stable { probe one(int n, string s); };
kern:::mark { n = n + 1; one(1, "x"); }
kern:::mark /self->t/ { one(1, "x"); self->t = 1; }
/* script */
stable:::one {}
