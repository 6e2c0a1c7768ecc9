syscall::read:entry { return(-1); }
