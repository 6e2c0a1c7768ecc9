"""The extension: the C library of this repository and one file for Python. It needs a C compiler and nothing else."""

import os
from setuptools import Extension, setup

# In the repository the library is beside this directory; a source distribution has it in `c/`.
C = "c"
setup(
    packages=["dtrace_usdt"],
    package_dir={"": "src"},
    ext_modules=[
        Extension(
            "dtrace_usdt._native",
            sources=["src/dtrace_usdt/_native.c", os.path.join(C, "dtrace_usdt.c")],
            include_dirs=[C],
            depends=[os.path.join(C, "dtrace_usdt.h")],
        )
    ],
)
