const x;
extern y;
