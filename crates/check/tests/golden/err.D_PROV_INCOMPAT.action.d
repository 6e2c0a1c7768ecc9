/* library */
provider stable { probe one(int n, string s); };
kern:::mark { @ = count(); one(1, "x"); }
/* script */
stable:::one {}
