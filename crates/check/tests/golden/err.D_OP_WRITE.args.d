syscall::read:entry { args[0] = 1; }
