inline int a[3] = 0;
BEGIN {}
