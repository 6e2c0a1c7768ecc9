// row inline.array-size
inline int SIZE = 3 + 2;
inline int TWICE[int n] = n * 2;
typedef char name_t[SIZE];
typedef struct box { char a[TWICE[SIZE]]; int bits : SIZE; } box_t;
enum sizes { FIRST = SIZE, SECOND };
BEGIN { trace(sizeof (name_t)); trace(sizeof (((box_t *)0)->a)); trace(SECOND); trace(SIZE ? 1 : nothing_here); }
