"""``python -m dtrace``: the command that is in this package."""

import os
import sys

from ._command import path

if __name__ == "__main__":
    command = path()
    if command is None:
        sys.exit("dtrace: this package was built without the command")
    os.execv(command, ["dtrace", *sys.argv[1:]])
