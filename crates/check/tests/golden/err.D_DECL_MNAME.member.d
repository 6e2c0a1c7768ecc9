struct s { int; };
BEGIN {}
