BEGIN { execnames[1] = 2; trace(execnamez[1]); trace(foo[1, 2]); }
