"""Where a command spends its time, as a flame graph in flame.html."""

import sys

import dtrace

work = [sys.executable, "-c", "sum(n * n for n in range(3_000_000))"]
result = dtrace.run("profile-499 /pid == $target/ { @[ustack()] = count(); }", command=work)
page = result.flame_graph("flame.html")
if page:
    with open("flame.html", "wb") as file:
        file.write(page)
print(sum(row.value for row in result), "samples")
