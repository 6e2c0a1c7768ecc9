int a;
BEGIN { commit(a); speculate(a); }
