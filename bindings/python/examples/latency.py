"""How long reads of a command take, by what it reads from."""

import dtrace

program = """
syscall::read:entry /pid == $target/ { self->start = timestamp; self->file = fds[arg0].fi_name; }
syscall::read:return /self->start/ {
    @[self->file] = quantize(timestamp - self->start);
    self->start = 0;
}
"""
result = dtrace.run(program, command=["cat", "/etc/passwd"])
for (file,), spread in result:
    print(f"{file}: {spread.total} reads, in nanoseconds")
    print(spread)
