"""The system calls of a command: command.py [WORD...]"""

import sys

import dtrace

words = sys.argv[2:] or ["ls", "/etc"]
result = dtrace.run("syscall:::entry /pid == $target/ { @[probefunc] = count(); }", command=words)
for (call,), count in sorted(result, key=lambda row: -row.value):
    print(f"{call:20} {count}")
