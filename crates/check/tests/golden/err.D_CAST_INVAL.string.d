BEGIN { trace((char *)execname); }
