unsigned foo_t x;
const;
int foo_t y;
