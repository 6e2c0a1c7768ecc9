"""The command that is in this package. Sessions execute it to read the symbols of processes."""

import os


def path():
    """Its path; None if the package was built without it."""
    found = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "dtrace")
    return found if os.access(found, os.X_OK) else None
