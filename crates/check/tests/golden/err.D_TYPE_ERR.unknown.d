nosuch_t x;
BEGIN { trace(sizeof (struct vmlinux`nowhere)); }
