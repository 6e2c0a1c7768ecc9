BEGIN { trace(trace(1)); trace(printf("x")); trace(exit(0)); trace(count()); }
