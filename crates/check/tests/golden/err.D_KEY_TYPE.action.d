BEGIN { a[stack()] = 1; a[1, sym(arg0)] = 2; trace(b[ustack()]); }
