"""Which programs make most system calls: count_calls.py [SECONDS]"""

import sys

import dtrace

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5
result = dtrace.run("syscall:::entry { @[execname] = count(); }", seconds=seconds)
for (name,), count in result["@"].rows[-10:]:
    print(f"{name:20} {count}")
