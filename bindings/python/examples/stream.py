"""The programs that a shell executes, while it does."""

import dtrace

program = """
proc:::exec-success /progenyof($target)/ { printf("%d %s", pid, curpsinfo->pr_psargs); }
"""
with dtrace.session(program, command=["sh", "-c", "ls / >/dev/null; uname -a >/dev/null"]) as session:
    for event in session:
        if isinstance(event, dtrace.Record):
            pid, arguments = event.values
            print(f"{pid:8} {arguments}")
