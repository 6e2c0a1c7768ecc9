struct s { int a:pid; };
BEGIN {}
