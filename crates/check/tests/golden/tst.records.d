BEGIN { trace((char)1); trace(1L); trace(execname); trace("c"); printf("%s %d %*d %-10s %?p %Y %%\n", probename, pid, 4, uid, copyinstr(arg0, 10), arg0, walltimestamp); exit(3); }
BEGIN { stack(); ustack(4, 64); sym(arg0); func(arg0); mod(arg0); usym(arg0); ufunc(arg0); umod(arg0); uaddr(arg0); printf("%k %a", stack(3), sym(arg1)); }
BEGIN {}
BEGIN { ; }
BEGIN { x = 1; }
