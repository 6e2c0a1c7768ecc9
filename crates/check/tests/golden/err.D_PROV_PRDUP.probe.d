/* library */
provider stable { probe one(int n, string s); probe one(int n); };
provider other { probe two(); };
provider third { probe two(); };
kern:::mark { two(); }
/* script */
BEGIN {}
