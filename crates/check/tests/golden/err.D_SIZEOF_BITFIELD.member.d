struct s { int a:3; };
BEGIN { trace(sizeof (((struct s *)arg0)->a)); }
