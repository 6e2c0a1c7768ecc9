BEGIN { trace(((int *)arg0)->x); trace(pid.x); }
