int a;
BEGIN { commit(a); trace(1); }
BEGIN { commit(a); exit(0); }
BEGIN { commit(a); stack(); }
