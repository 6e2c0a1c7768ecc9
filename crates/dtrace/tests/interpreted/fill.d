/*
 * By policy fill, the first record that finds its ring full ends tracing; shorter ones behind it are
 * dropped too. END has an empty ring.
 *
 * option quiet
 * option bufpolicy=fill
 * option bufsize=4k
 * option strsize=256
 * cpus 2
 * fire syscall::read:entry cpu=1
 * fire syscall::read:entry cpu=0
 */
BEGIN { printf("begin\n"); }
syscall::read:entry { @fired = count(); }
syscall::read:entry { n = 1; printf("%s\n", strjoin("fir", "st")); }
syscall::read:entry { n = 2; printf("%s %s\n", strjoin("sec", "ond"), strjoin("e", "f")); }
syscall::read:entry { printf("%s %s %s %s\n", strjoin("lo", "ng"), strjoin("", ""), strjoin("", ""), strjoin("", "")); }
syscall::read:entry { printf("%s %s %s %s\n", strjoin("lo", "ng"), strjoin("", ""), strjoin("", ""), strjoin("", "")); }
syscall::read:entry { printf("%s %s %s %s\n", strjoin("lo", "ng"), strjoin("", ""), strjoin("", ""), strjoin("", "")); }
syscall::read:entry { n = 3; printf("%s %s %s %s\n", strjoin("a", "b"), strjoin("c", "d"), strjoin("e", "f"), strjoin("g", "h")); n = 4; }
syscall::read:entry { n = 5; printf("short\n"); }
END { printf("%s %s %s n is %d\n", strjoin("e", "n"), strjoin("d", "."), strjoin("", ""), n); }
