struct s { nosuch_t a; };
typedef nosuch_t alias_t;
typedef struct s s_t;
enum e { FIRST = nowhere, SECOND };
inline int WRONG = nothing + 1;
translator psinfo_t < struct s *P > { pr_pid = P->a; };
struct s v;
alias_t x;
s_t w;
BEGIN { v.a = 1; x = 1; w.a = 2; trace(SECOND); trace(WRONG); trace(sizeof (struct s)); trace((alias_t)1); }
BEGIN { y = nothing2; @a[nothing3] = count(); }
END { trace(y + 1); y = 2; printa(@a); @a[1] = count(); }
