syscall::read:entry, syscall::write:entry { trace(args[2]); }
