BEGIN { trace(pid)); }
BEGIN { trace(pid]); }
BEGIN { trace(args[0]]); }
BEGIN / pid } / { trace(1); }
