BEGIN { trace(execname * 2); trace(-execname); }
