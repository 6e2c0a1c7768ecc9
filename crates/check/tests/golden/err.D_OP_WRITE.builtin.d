BEGIN { pid = 3; timestamp++; *(int *)arg0 = 1; }
