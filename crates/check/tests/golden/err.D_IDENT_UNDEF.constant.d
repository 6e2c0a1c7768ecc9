BEGIN { trace(SIGKIL); trace(arg0 == O_RDONLY); trace(x1); }
