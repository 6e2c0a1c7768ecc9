BEGIN { a[1] = 2; trace(a); a = 3; trace(count); }
