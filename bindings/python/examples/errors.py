"""What is wrong in a program, and where."""

import dtrace

try:
    dtrace.run("syscall::open*:entry {\n    @[exename] = count();\n}")
except dtrace.Error as error:
    for found in error.diagnostics:
        print(f"line {found.line}, column {found.column}: {found.text} ({found.tag})")
        for help in found.help:
            print("   ", help)
