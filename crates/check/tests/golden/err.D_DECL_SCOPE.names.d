int a`b;
typedef int c`d;
struct e`f { int x; };
enum g`h { X };
inline int i`j = 3;
