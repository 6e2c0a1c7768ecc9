BEGIN { trace(SIGKILL); trace(arg0 == O_RDONLY); trace(x1); }
