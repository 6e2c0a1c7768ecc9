BEGIN { self = 3; trace(this); self[1] = 2; trace(this[2]); }
