int f(int, int a[int]);
