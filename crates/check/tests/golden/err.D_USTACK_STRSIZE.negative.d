BEGIN { ustack(1, -1); ustack(1, pid); }
