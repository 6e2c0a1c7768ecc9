struct s { int a:3; };
BEGIN { trace(&((struct s *)arg0)->a); }
