int a;
BEGIN { commit(a); commit(a); }
