BEGIN { @a[(void)1] = count(); @b[trace(1)] = count(); x[(void)1] = 1; }
