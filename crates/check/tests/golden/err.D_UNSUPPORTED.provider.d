provider mine { probe up(int n); };
BEGIN { trace(1); }
