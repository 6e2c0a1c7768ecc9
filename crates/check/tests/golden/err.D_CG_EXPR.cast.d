BEGIN { (void)trace(1); -trace(1); }
