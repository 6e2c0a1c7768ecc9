int v[3];
struct point { int x; int y; };
struct far { char c[20000]; } *f;
struct point p;
BEGIN { c[v] = 1; @[v] = count(); d[*f] = 1; @b[*f] = count(); @[1] = count(); }
BEGIN { e[p] = 1; e[1] = 2; @e[p] = count(); @e["x"] = count(); }
