BEGIN { return(-1); }
