/*
 * By policy ring, the newest records of each CPU are printed at the end, and END after them.
 *
 * option quiet
 * option bufpolicy=ring
 * option bufsize=4k
 * option strsize=256
 * cpus 2
 * fire syscall::read:entry cpu=1 time=1000
 * fire syscall::read:entry cpu=0 time=2000
 * fire syscall::read:entry cpu=0 time=3000
 * fire syscall::read:entry cpu=0 time=4000
 * fire syscall::read:entry cpu=1 time=5000
 * fire syscall::read:entry cpu=0 time=6000
 * fire syscall::read:entry cpu=0 time=7000
 * fire syscall::read:entry cpu=0 time=8000
 * fire syscall::read:entry cpu=1 time=9000
 * fire syscall::read:entry cpu=0 time=10000
 * fire syscall::read:entry cpu=0 time=11000
 * fire syscall::read:entry cpu=0 time=12000
 * fire syscall::read:entry cpu=1 time=13000
 * fire syscall::read:entry cpu=0 time=14000
 * fire syscall::read:entry cpu=0 time=15000
 * fire syscall::read:entry cpu=0 time=16000
 * fire syscall::read:entry cpu=1 time=17000
 * fire syscall::read:entry cpu=0 time=18000
 * fire syscall::read:entry cpu=0 time=19000
 * fire syscall::read:entry cpu=0 time=20000
 * fire syscall::read:entry cpu=1 time=21000
 * fire syscall::read:entry cpu=0 time=22000
 * fire syscall::read:entry cpu=0 time=23000
 * fire syscall::read:entry cpu=0 time=24000
 * fire syscall::read:entry cpu=1 time=25000
 * fire syscall::read:entry cpu=0 time=26000
 * fire syscall::read:entry cpu=0 time=27000
 * fire syscall::read:entry cpu=0 time=28000
 * fire syscall::read:entry cpu=1 time=29000
 * fire syscall::read:entry cpu=0 time=30000
 * fire syscall::read:entry cpu=0 time=31000
 * fire syscall::read:entry cpu=0 time=32000
 * fire syscall::read:entry cpu=1 time=33000
 * fire syscall::read:entry cpu=0 time=34000
 * fire syscall::read:entry cpu=0 time=35000
 * fire syscall::read:entry cpu=0 time=36000
 * fire syscall::read:entry cpu=1 time=37000
 * fire syscall::read:entry cpu=0 time=38000
 * fire syscall::read:entry cpu=0 time=39000
 * fire syscall::read:entry cpu=0 time=40000
 */
BEGIN { printf("begin\n"); }
syscall::read:entry { printf("%d on %d %s\n", n++, cpu, strjoin("re", "ad")); }
syscall::read:entry /n == 40/ { @["fired"] = count(); trace(*(int *)0); }
END { printf("%s %s\n", strjoin("e", "nd"), strjoin("", "")); }
