unsigned struct s { int x; } a;
signed float b;
unsigned string c;
