int a[0];
BEGIN {}
