BEGIN { trace(1 / 0); trace(pid % 0); x /= 0; }
