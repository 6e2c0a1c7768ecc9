struct x { int rows[][]; };
int f(int a[][]);
int own[];
BEGIN { }
