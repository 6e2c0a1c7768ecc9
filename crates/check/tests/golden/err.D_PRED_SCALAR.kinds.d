int a[3];
char c[4];
struct point { int x; } p;
BEGIN /a/ { }
BEGIN /c/ { }
BEGIN /p/ { }
BEGIN /(void)1/ { }
BEGIN /trace(1)/ { }
BEGIN /@n/ { @n = count(); }
