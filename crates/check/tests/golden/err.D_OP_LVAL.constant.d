BEGIN { 1 = 2; (pid + 1)++; @a++; }
