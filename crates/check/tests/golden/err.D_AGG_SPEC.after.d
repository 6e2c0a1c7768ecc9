int a;
BEGIN { speculate(a); @ = count(); }
