/* A string used as a pointer to its characters. */
string s;
BEGIN { trace(s[2]); trace(*s); trace(*(s + 1)); trace(s + 3); trace(1 + s); trace(s[arg0]); trace("abc"[1]); trace((s + 1)[2] == 'x'); trace(execname[0]); trace(strlen(s + 2)); trace(stringof(s + 1) == "x"); trace(s[0] + 1); trace(s + 0); }
