/* library */
provider stable { probe one(int n, string s); };
kern:::mark { n = 1, one(1, "x"); }
/* script */
BEGIN {}
