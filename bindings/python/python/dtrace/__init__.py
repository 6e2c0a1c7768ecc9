"""DTrace for Linux: questions in D, answers as objects.

    >>> import dtrace
    >>> result = dtrace.run("syscall:::entry { @[execname] = count(); }", seconds=5)
    >>> for key, value in result:
    ...     print(*key, value)

``run`` traces until it is over and returns a ``Result``; ``session`` gives the events while they
come. Tracing needs the privileges of the command: root, or CAP_BPF and CAP_PERFMON.
"""

from ._dtrace import version as __version__
from ._result import Result
from ._session import Session, run, session
from ._types import (
    Aggregation,
    Bucket,
    Diagnostic,
    Distribution,
    Drop,
    Effect,
    End,
    Error,
    Fault,
    Field,
    Growth,
    Interval,
    Notice,
    Probe,
    Record,
    Report,
    Row,
    Stack,
    Start,
    Suppressed,
    Symbol,
)

__all__ = [
    "Aggregation", "Bucket", "Diagnostic", "Distribution", "Drop", "Effect", "End", "Error", "Fault",
    "Field", "Growth", "Interval", "Notice", "Probe", "Record", "Report", "Result", "Row", "Session",
    "Stack", "Start", "Suppressed", "Symbol", "run", "session",
]  # fmt: skip
