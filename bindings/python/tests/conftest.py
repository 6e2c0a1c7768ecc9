"""What the tests share. The program `tests/main.rs` makes the package that they import."""

import os
import sys

import pytest

LIMIT = 120
"""Seconds after which something that does not come is a failure."""


@pytest.fixture
def calls():
    """The command of a program that calls getppid(2) so many times."""
    return lambda count: [sys.executable, "-c", f"import os\nfor _ in range({count}): os.getppid()"]


def descriptors(pid="self"):
    """How many descriptors of BPF a process has."""
    found = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += "bpf" in os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            pass
    return found
