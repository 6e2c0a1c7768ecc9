int a;
BEGIN { speculate(a); exit(0); }
