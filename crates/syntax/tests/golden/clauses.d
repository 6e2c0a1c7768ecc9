#!/usr/sbin/dtrace -s
/* probe descriptions, predicates, bodies */
BEGIN { }
dtrace:::END { ; }
:::
{ trace(1); }
syscall::read:entry, syscall::write:entry,
profile-97
/pid == 12 / 2 && execname != "x"/
{
	x = 1;
	y = x / 2	/* last without semicolon */
}
syscall::*r?ad[1-9!x]\*:en* { }
7 { }
12, tick-1s { trace(1) }
fbt:vmlinux:vfs_read:return /self->t/ { self->t = 0; @[execname, pid] = sum(arg1); @ = count(); @a = max(1); }
io:::start / (1 / 2) / // closing
# 1 "x"
{ x }
BEGIN / a / /* c */ { }
vmlinux`foo:entry { }
int:::entry { }
int* { }
int*:::entry { }
9p:::entry { }
