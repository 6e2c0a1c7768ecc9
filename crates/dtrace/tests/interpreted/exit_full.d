/*
 * The last bytes of a ring are kept for exit(): it is not lost with the records of a flood.
 *
 * option quiet
 * option bufsize=4k
 * option strsize=512
 * fire syscall::read:entry
 * fire syscall::read:entry
 */
syscall::read:entry { printf("%s", strjoin("1", " ")); }
syscall::read:entry { printf("%s", strjoin("2", " ")); }
syscall::read:entry { printf("%s", strjoin("3", " ")); }
syscall::read:entry { printf("%s", strjoin("4", " ")); }
syscall::read:entry { printf("%s", strjoin("5", " ")); }
syscall::read:entry { printf("%s", strjoin("6", " ")); }
syscall::read:entry { printf("%s", strjoin("7", " ")); }
syscall::read:entry { printf("%s", strjoin("7 and", " more")); exit(3); }
END { printf("end\n"); }
