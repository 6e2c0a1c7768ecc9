struct nowhere x;
BEGIN {}
