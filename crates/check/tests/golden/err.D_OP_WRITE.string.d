string s;
BEGIN { execname[0] = 65; *probename = 65; }
BEGIN { s[0] = "x"; }
BEGIN { "abc"[1] = 65; strjoin("a", "b")[0] = 65; (string)"x"[0]++; }
