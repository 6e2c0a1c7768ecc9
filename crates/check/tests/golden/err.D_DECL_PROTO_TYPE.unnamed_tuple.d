int f(int [string]);
