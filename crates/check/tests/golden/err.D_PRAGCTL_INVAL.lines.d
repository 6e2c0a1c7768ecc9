#pragmas
#incldue <x.h>
#define X 1
# line 3
#	idnet "x"
BEGIN { exit(0); }
