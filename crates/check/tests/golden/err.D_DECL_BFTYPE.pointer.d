struct s { char *a:3; };
BEGIN {}
