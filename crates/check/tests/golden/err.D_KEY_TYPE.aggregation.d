BEGIN { @b = count(); a[@b] = 1; c[1, count()] = 2; @d[@b] = count(); @e[sum(1)] = count(); }
