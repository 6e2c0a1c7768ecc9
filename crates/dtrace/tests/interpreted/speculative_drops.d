/*
 * Drops of speculations: no free id, ids that are still busy, a full buffer.
 *
 * option quiet
 * option nspec=1
 * option specsize=100
 * fire syscall::read:entry
 */
BEGIN { a = speculation(); b = speculation(); discard(a); c = speculation(); }
syscall::read:entry { a = speculation(); }
syscall::read:entry { speculate(a); printf("first\n"); n++; }
syscall::read:entry { speculate(a); printf("second\n"); n++; }
syscall::read:entry { speculate(a); printf("third\n"); n++; }
syscall::read:entry { speculate(a); printf("fourth\n"); n++; }
syscall::read:entry { speculate(a); printf("fifth\n"); n++; }
END { printf("%d %d %d, %d stored\n", a, b, c, n); }
END { commit(a); }
