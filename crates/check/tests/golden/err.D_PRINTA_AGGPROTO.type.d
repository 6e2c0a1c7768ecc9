BEGIN { @a[1] = count(); @b[execname] = count(); printa(@a, @b); }
