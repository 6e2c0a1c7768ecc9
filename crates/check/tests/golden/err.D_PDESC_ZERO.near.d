sycall::read:entry {}
syscall::raed:entry {}
syscall::read:entri {}
begin {}
