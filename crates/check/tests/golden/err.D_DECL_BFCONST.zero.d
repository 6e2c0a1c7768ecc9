struct s { int a:0; };
struct t { int b:-1; };
