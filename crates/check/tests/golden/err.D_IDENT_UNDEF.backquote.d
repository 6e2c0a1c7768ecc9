BEGIN { trace(sizeof (`)); trace(vmlinux`); }
