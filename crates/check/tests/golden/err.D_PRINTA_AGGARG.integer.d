BEGIN { printa(1); printa("%d", 2); }
