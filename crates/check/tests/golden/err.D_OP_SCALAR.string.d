BEGIN { trace(!execname); trace(execname && 1); s = execname; s++; }
