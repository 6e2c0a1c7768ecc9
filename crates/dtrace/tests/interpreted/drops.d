/*
 * A record that does not fit into its ring is counted; its clause has no effect.
 *
 * option quiet
 * option bufsize=4k
 * option strsize=256
 * cpus 2
 * fire syscall::read:entry cpu=1
 */
syscall::read:entry { n = 1; printf("%s\n", stringof("first")); }
syscall::read:entry { n = 2; printf("%s\n", strjoin("sec", "ond")); }
syscall::read:entry { n = 3; printf("%s\n", strjoin("thi", "rd")); }
syscall::read:entry { printf("%s %s %s %s\n", strjoin("lo", "ng"), strjoin("", ""), strjoin("", ""), strjoin("", "")); }
syscall::read:entry { printf("%s %s %s %s\n", strjoin("lo", "ng"), strjoin("", ""), strjoin("", ""), strjoin("", "")); }
syscall::read:entry { printf("%s %s %s %s\n", strjoin("lo", "ng"), strjoin("", ""), strjoin("", ""), strjoin("", "")); }
syscall::read:entry { n = 4; printf("%s %s %s %s\n", strjoin("a", "b"), strjoin("c", "d"), strjoin("e", "f"), strjoin("g", "h")); n = 5; }
END { printf("n is %d\n", n); }
