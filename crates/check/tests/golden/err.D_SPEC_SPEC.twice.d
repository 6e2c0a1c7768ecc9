int a;
BEGIN { speculate(a); speculate(a); }
