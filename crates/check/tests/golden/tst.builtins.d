BEGIN { trace(caller); trace(ucaller); trace(ustackdepth); trace(stackdepth); trace(ipl); trace(threadname); trace(uregs[16]); }
