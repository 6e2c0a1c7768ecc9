"""The system calls of a command as a DataFrame of pandas."""

import dtrace

program = "syscall:::entry /pid == $target/ { @[probefunc, errno] = count(); }"
frame = dtrace.run(program, command=["ls", "-l", "/etc"]).to_pandas()
print(frame.sort_values("value", ascending=False).head(10))
