/*
 * Probes of a library: a clause fires them, with its condition and its state, and goes on after them.
 *
 * option quiet
 * library library
 * probe base vmlinux f start int
 * probe base vmlinux f stop int
 * fire base:::start time=1000 pid=7 args=5 execname=one
 * fire base:::stop time=1500 pid=7 args=0
 * fire base:::stop time=1600 pid=7 args=0
 * fire base:::start time=1700 pid=7 args=6
 * fire base:::stop time=1900 pid=7 args=0
 * fire base:::start time=2000 pid=8 args=0 execname=two
 * fire base:::stop time=2500 pid=8 args=0
 */
work:::tick { this->seen++; printf("%s:%s:%s:%s %d\n", probeprov, probemod, probefunc, probename, this->seen); }
work:::begin { this->seen++; printf("begin %d %s, arg0 %d, %d\n", args[0], args[1], arg0, this->seen); }
work:::done { printf("done %d after %d, twice %d\n", args[1], args[0], args[2]->w_twice); trace(*(int *)0); }
work:::done /args[1] == 5/ { printf("the next clause\n"); @[probename] = sum(args[0]); }
work:::begin, base:::start { @n["two"] = count(); }
base:::stop { this->seen++; printf("base %d\n", this->seen); }
high:::again { printf("again %d of %d\n", args[0], args[1]); }
ERROR { printf("error of %d\n", arg1 > 0); }
