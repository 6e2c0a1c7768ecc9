/*
 * Faults end their clause, fire ERROR with their arguments, and are reported.
 *
 * option quiet
 * probe disk sd io start
 * probe disk sd io done
 * user 0x1000 "readable\0"
 * fire disk:::start args=0x1000
 * fire disk:::start args=0x9000
 * fire disk:::done args=0
 */
int zero;
disk:::start { printf("open %s\n", copyinstr(arg0)); }
disk:::start { printf("after %x\n", arg0); }
disk:::done { printf("lost\n"); zero = 5 / zero; }
disk:::done / *(int *)8 == 0 / { printf("never\n"); }
ERROR { printf("ERROR %s epid %d action %d kind %d value %x\n", probename, arg1, arg2, arg4, arg5); }
ERROR /arg4 == 4/ { zero = 1 / zero; }
END { printf("zero is %d\n", zero); }
