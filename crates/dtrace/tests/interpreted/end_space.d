/*
 * By policy ring too, the buffer has space for all records of END, whatever bufsize says.
 *
 * option quiet
 * option bufpolicy=ring
 * option bufsize=64
 * option strsize=1000
 * fire syscall::read:entry
 */
syscall::read:entry { printf("read\n"); }
END { printf("end %d %s\n", 1, strjoin("a", "b")); }
END { printf("end %d %s\n", 2, strjoin("a", "b")); }
END { printf("end %d %s\n", 3, strjoin("a", "b")); }
END { printf("end %d %s\n", 4, strjoin("a", "b")); }
END { printf("end %d %s\n", 5, strjoin("a", "b")); }
END { printf("end %d %s\n", 6, strjoin("a", "b")); }
END { printf("end %d %s\n", 7, strjoin("a", "b")); }
END { printf("end %d %s\n", 8, strjoin("a", "b")); }
END { printf("end %d %s\n", 9, strjoin("a", "b")); }
END { printf("end %d %s\n", 10, strjoin("a", "b")); }
END { printf("end %d %s\n", 11, strjoin("a", "b")); }
END { printf("end %d %s\n", 12, strjoin("a", "b")); }
