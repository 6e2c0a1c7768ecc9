BEGIN { trace(*1); x = 1; trace(x[2]); }
