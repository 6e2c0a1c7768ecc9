inline int OPT = 1;
BEGIN { OPT ? printf("yes") : 1; OPT ? 1 : nosuch; !OPT ? trace(2) : trace(3); pid == 1 ? x = 1 : 0; }
BEGIN { trace(OPT ? 10 : "no type problem"); }
