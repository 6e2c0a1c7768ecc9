BEGIN { trace(@a[1][2]); }
