int a[3];
BEGIN { trace(!a); trace(a && 1); trace(1 ^^ a); trace(a ? 1 : 2); }
