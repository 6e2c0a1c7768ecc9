/*
 * -F: calls of two threads, which interleave.
 *
 * option flowindent
 * cpus 2
 * probe fbt vmlinux outer entry
 * probe fbt vmlinux outer return
 * probe fbt vmlinux inner entry
 * probe fbt vmlinux inner return
 * fire fbt::outer:entry tid=1 time=1
 * fire fbt::outer:entry tid=2 time=2 cpu=1
 * fire fbt::inner:entry tid=1 time=3 cpu=1
 * fire fbt::inner:return tid=1 time=4 cpu=1
 * fire fbt::outer:return tid=2 time=5 cpu=1
 * fire fbt::outer:return tid=1 time=6
 */
fbt::: { trace(tid); }
