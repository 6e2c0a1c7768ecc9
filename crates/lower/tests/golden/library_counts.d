/* library */
provider stable { probe one(int n); };
int64_t left[int];
int32_t small[int];
this int64_t before;
syscall::read:entry { left[1]++; left[arg0] -= 2; this->before = left[1]--; small[1]++; }
syscall::read:entry /--left[1] == -1/ { left[1] = 0; one(this->before + small[1]); }
/* script */
int64_t left[int];
stable:::one { left[1]++; trace(args[0]); }
