// mode: name
syscall::read:entry
BEGIN, END
tick-1s { }
x /y/ { }
12
