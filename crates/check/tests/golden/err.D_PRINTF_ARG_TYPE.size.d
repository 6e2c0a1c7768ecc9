BEGIN { printf("%lx", 1); printf("%s", 1); printf("%d", execname); printf("%s", (char *)arg0); }
