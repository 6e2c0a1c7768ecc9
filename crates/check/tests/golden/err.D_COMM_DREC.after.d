int a;
BEGIN { trace(1); commit(a); }
BEGIN { @ = count(); commit(a); }
BEGIN { speculate(a); trace(1); commit(a); }
BEGIN { discard(a); printf("x"); commit(a); }
