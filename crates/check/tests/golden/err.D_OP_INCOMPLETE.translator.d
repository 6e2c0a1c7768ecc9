struct shown { int n; char c; };
translator struct shown < struct nowhere *p > { n = p->n; c = ((struct nowhere *)p)->c; };
BEGIN { }
