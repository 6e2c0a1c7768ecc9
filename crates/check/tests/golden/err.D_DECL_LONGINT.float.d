long float a;
long struct t { int x; } b;
long string c;
