struct given { int n; };
struct shown { int n; char c; };
translator struct shown < struct given *p > { n = p->n; c = p->c; };
BEGIN { }
