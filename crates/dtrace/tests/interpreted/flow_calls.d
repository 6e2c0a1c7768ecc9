/*
 * -F: arrows of given probes are those of the provider that they stand for. A return without an
 * entry closes no call of the kernel.
 *
 * option flowindent
 * probe syscall vmlinux read entry
 * probe syscall vmlinux read return
 * probe fbt vmlinux f entry
 * probe fbt vmlinux g return
 * probe tool a f entry
 * probe tool a g return
 * fire syscall::read:entry tid=1 time=1
 * fire fbt::f:entry tid=1 time=2
 * fire fbt::g:return tid=1 time=3
 * fire tool::f:entry tid=1 time=4
 * fire tool::g:return tid=1 time=5
 * fire syscall::read:return tid=1 time=6
 */
syscall:::, fbt:::, tool::: { trace(timestamp); }
