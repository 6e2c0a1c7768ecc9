struct s { char a[0x7fffffffffffffff]; char b[0x7fffffffffffffff]; };
BEGIN {}
