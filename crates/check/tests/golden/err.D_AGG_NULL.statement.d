BEGIN { @a = count(); }
END { @a; @b[pid]; }
