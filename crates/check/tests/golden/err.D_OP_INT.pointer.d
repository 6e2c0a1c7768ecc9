BEGIN { trace((int *)arg0 & 1); trace(~execname); }
