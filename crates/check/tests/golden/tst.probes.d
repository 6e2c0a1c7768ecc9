syscall:::entry, syscall::read:return, BEGIN /pid == 1/ { trace(probefunc); }
::r*: {}
entry {}
syscall::[rw]*:[!e]* {}
1 {}
