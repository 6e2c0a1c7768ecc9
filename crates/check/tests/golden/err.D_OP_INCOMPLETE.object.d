struct nosuch;
struct nosuch *p;
BEGIN { trace(*p); }
BEGIN { *p; }
BEGIN { trace(*(struct other *)0); }
BEGIN { trace(&*p == 0); }
