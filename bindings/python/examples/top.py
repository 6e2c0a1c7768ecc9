"""The busiest system calls, again every so often: top.py [SECONDS]"""

import sys
import time

import dtrace

pause = float(sys.argv[1]) if len(sys.argv) > 1 else 1
with dtrace.session("syscall:::entry { @[probefunc] = count(); }") as session:
    before = {}
    for _ in range(3):
        time.sleep(pause)
        now = session.aggregations()["_"].to_dict()
        grown = {name: count - before.get(name, 0) for name, count in now.items()}
        for name, count in sorted(grown.items(), key=lambda item: -item[1])[:5]:
            print(f"{name:20} {count}")
        print()
        before = now
