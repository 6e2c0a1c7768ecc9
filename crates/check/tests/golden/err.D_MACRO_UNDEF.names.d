BEGIN { trace($1); trace($$2); trace($pdi); trace($projid); trace($taskid); }
syscall::$3:entry { }
