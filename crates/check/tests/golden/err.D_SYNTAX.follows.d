BEGIN { y = ; trace(unknown1); z = 1; @a = count(; }
END { trace(y); trace(z); printa(@a); trace(execnam); }
int broken bad;
typedef int type_t
struct other { int a; };
END { trace(bad); trace((type_t)1); trace(unknown2); }
