syscall::read:entry, syscall::openat:entry /args[0] != 1/ { if (args[0] > 2) { trace(args[0]); } else { @[args[2]] = count(); } }
