int a;
BEGIN { trace(1); speculate(a); }
BEGIN { @ = count(); speculate(a); }
BEGIN { clear(@); speculate(a); }
BEGIN { system("true"); speculate(a); }
BEGIN { exit(0); speculate(a); }
