"""Asks a second question about the answer of the first, in the same session."""

import time

import dtrace

with dtrace.session("syscall:::entry { @calls[probefunc] = count(); }") as session:
    time.sleep(0.2)
    calls = session.aggregations()["calls"].to_dict()
    busiest = max(calls, key=calls.get)
    session.enable("syscall::$1:entry { @who[execname] = count(); }", args=[busiest])
    time.sleep(0.2)
    result = session.finish()
    print(busiest, result["who"].to_dict())
