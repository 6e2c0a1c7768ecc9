/*
 * Stacks with the symbols that are given, as records, keys and symbols of addresses.
 *
 * option quiet
 * probe fbt vmlinux vfs_read entry
 * symbol 0xffffffff81001000-0xffffffff81001100 vmlinux`vfs_read
 * symbol 0xffffffff81002000-0xffffffff81002100 vmlinux`ksys_read
 * symbol 0xffffffffc0000000-0xffffffffc0000100 ext4`ext4_read
 * usymbol 7 0x7f0000001000-0x7f0000001100 libc.so.6`read
 * usymbol 7 0x400000-0x401000 cat`main
 * fire fbt::vfs_read:entry pid=7 stack=0xffffffff81001000,0xffffffff81002010,0xffffffffc0000020 ustack=0x7f0000001004,0x400010
 * fire fbt::vfs_read:entry pid=7 stack=0xffffffff81001000,0xffffffff81002010,0xffffffffc0000020 ustack=0x7f0000001004,0x400010
 * fire fbt::vfs_read:entry pid=8 stack=0xffffffff81001000,0x1234 ustack=0x400010
 */
fbt::vfs_read:entry { @k[stack()] = count(); @u[ustack()] = count(); @f[func(caller)] = count(); @m[mod(caller)] = count(); }
fbt::vfs_read:entry /pid == 7 && !seen++/ { printf("depth %d %d\n", stackdepth, ustackdepth); stack(2); ustack(); sym(caller); usym(ucaller); }
