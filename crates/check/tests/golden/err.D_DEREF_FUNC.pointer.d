BEGIN { trace(*(int (*)(int))arg0); }
