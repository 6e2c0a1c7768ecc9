enum color { RED };
enum color { BLUE };
union u { int a; };
union u { int b; };
