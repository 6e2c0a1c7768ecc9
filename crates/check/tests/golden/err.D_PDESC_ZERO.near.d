sycall::read:entry {}
syscall::raed:entry {}
syscall::read:entri {}
begin {}
kern:vmlunix::touch {}
kern::touch: {}
