string s;
BEGIN { trace(s - 1); trace(s + s); trace(s["x"]); trace(s + "x"); s[0] = 'x'; *s = 'x'; trace(&s[1]); trace(s++); }
