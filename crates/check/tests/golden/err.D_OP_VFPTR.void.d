BEGIN { p = (void *)arg0; p++; p += 1; }
