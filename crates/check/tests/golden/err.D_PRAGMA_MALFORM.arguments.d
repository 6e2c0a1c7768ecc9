#pragma
#pragma D
#pragma D option
#pragma D option quiet yes
#pragma D attributes x
#pragma D attributes Stable/Stable/Common provider syscall thing
#pragma D binding 1.0 x
#pragma D binding "1.0"
#pragma D depends_on library
#pragma D depends_on kernel x
#line
#pragma line x
BEGIN { x = 1; }
