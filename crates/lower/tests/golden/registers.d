syscall::read:entry /ipl == 0/ { trace(uregs[16]); @[threadname, caller, ucaller] = max(ustackdepth); }
