enum color { RED = -1, GREEN = 2 };
typedef struct inner { uint64_t alpha; unsigned int b:4; int c:7; } inner_t;
struct outer { int a[3]; char name[16]; inner_t in[2]; struct { void *p; void (*f)(int); } u; enum color col; double d; };
BEGIN { this->o = (struct outer *)arg0; print(*this->o); trace(*this->o); print(this->o->name); print(this->o->in); print(this->o->in[1].c); print(this->o->col); print(this->o->d); print(GREEN); print("text"); print((char)65); print((uint_t)1); print((void *)8); }
BEGIN { printf("%s %f %d", ((struct outer *)arg0)->name, ((struct outer *)arg0)->d, ((struct outer *)arg0)->a[1]); trace(((struct outer *)arg0)->d); }
BEGIN { tracemem(arg0, 32); tracemem((void *)arg0, 8, arg1); }
