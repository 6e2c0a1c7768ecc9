syscall::read:entry { trace(args[2]); trace(args[3]); } BEGIN { trace(args[0]); } syscall:::return { trace(args[-1]); }
