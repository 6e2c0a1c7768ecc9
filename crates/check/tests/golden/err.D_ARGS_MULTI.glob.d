syscall:::entry { trace(args[0]); }
