/* library */
provider stable { probe one(int n, string s); probe two(int n, string s); };
stable:::one { two(args[0], args[1]); }
stable:::two { one(args[0], args[1]); }
/* script */
BEGIN {}
