BEGIN { trace(execname == 1); x = 1; x = "s"; trace(pid ? 1 : execname); trace((int *)arg0 == pid); }
