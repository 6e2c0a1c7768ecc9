syscall::openat:entry { trace(args[0]); trace(copyinstr((uintptr_t)args[1])); trace(args[3]); trace(*args[1]); trace(sizeof (args[3])); }
syscall:::return { @ = sum(args[1]); }
kern:::touch { trace(args[0]->pid); }
kern:::mark /args[0] == "here"/ { trace(args[0]); trace(stringof(args[1])); trace(args[2].next); }
