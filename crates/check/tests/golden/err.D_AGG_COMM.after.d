int a;
BEGIN { commit(a); @ = count(); }
