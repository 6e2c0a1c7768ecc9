struct s { char a:9; };
BEGIN {}
