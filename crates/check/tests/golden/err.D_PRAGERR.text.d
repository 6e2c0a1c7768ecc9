#error this system is "too old"
#pragma error so is this
#pragma D error and this
BEGIN { exit(0); }
