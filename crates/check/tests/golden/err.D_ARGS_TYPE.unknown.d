kern:::touch { trace(args[1]); trace(args[2]); }
