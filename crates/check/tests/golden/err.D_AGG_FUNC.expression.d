BEGIN { @a = 1; }
END { @b += count(); }
ERROR { @c = strlen("x"); }
