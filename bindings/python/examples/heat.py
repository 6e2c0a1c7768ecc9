"""The sizes of what a command writes, over time, as a heat map in heat.html."""

import dtrace

program = "syscall::write:entry /pid == $target/ { @bytes[execname] = quantize(arg2); }"
command = ["dd", "if=/dev/zero", "of=/dev/null", "bs=4k", "count=20000", "status=none"]
result = dtrace.run(program, command=command, options={"every": "20ms"})
with open("heat.html", "wb") as file:
    file.write(result.heat_map("heat.html"))
print(result["bytes"]["dd"].total, "writes in", len(result.intervals), "intervals")
