syscall::read:entry, syscall::openat:entry, syscall::write:entry /args[0] >= 0/ { @[probefunc, args[2]] = count(); }
