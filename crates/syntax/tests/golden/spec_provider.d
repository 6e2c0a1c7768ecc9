// mode: provider
syscall, profile /x/ { }
a:b { }
