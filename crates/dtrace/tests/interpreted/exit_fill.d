/*
 * By policy fill, the last bytes of a buffer are kept for exit(): its status, which is no constant, is
 * not lost where the buffer is full.
 *
 * option quiet
 * option bufpolicy=fill
 * option bufsize=4k
 * option strsize=512
 * fire syscall::read:entry
 */
syscall::read:entry { printf("%s\n", strjoin("1", "")); }
syscall::read:entry { printf("%s\n", strjoin("2", "")); }
syscall::read:entry { printf("%s\n", strjoin("3", "")); }
syscall::read:entry { printf("%s\n", strjoin("4", "")); }
syscall::read:entry { printf("%s\n", strjoin("5", "")); n = 4; }
syscall::read:entry { printf("%s\n", strjoin("6", " and more")); exit(n + 1); }
END { printf("end\n"); }
