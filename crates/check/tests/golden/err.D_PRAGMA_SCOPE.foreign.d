#pragma D attributes Stable/Stable/Common pid
#pragma D attributes Stable/Stable/Common syscall
#pragma D binding "1.0" trace
BEGIN { trace(SIGKILL); }
#pragma D attributes Stable/Stable/Common SIGKILL
#pragma D attributes Stable/Stable/Common provider syscall args
#pragma D attributes Stable/Stable/Common provider nowhere name
