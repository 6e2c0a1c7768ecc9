syscall::nosuch:entry { self->a = args[0]->b; trace(args[1]); trace(unknown1); }
BEGIN { trace(self->a); trace(unknown2); }
