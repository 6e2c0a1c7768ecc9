struct s { char text[16]; int n[4]; };
struct s x;
BEGIN { trace((long)x.text); }
BEGIN { trace((char)x.n); }
BEGIN { trace((char *)x.n != 0); trace((string)x.text); }
