struct s { int first; };
BEGIN { trace(((struct s *)arg0)->frist); trace(offsetof(struct s, x)); }
