BEGIN { system("echo %s %d", execname, pid); freopen("/tmp/%s.out", probename); freopen(""); ftruncate(); setopt("quiet"); setopt("aggsortpos", "2"); }
