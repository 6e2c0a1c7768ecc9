"""Sessions: from programs to events and results."""

import operator
import os
import time

from . import _dtrace
from ._command import path
from ._result import Result
from ._types import End, Error


def _bytes(text):
    """A text as bytes: what is no UTF-8 is as in the names of files."""
    return text if isinstance(text, bytes) else os.fspath(text).encode("utf-8", "surrogateescape")


def _programs(program, script):
    """Texts and scripts, each with its name."""
    texts = [] if program is None else [program] if isinstance(program, (str, bytes)) else list(program)
    scripts = [] if script is None else [script] if isinstance(script, (str, bytes, os.PathLike)) else script
    found = [(None, _bytes(text)) for text in texts]
    for name in scripts:
        with open(name, "rb") as file:
            found.append((_bytes(name), file.read()))
    if not found:
        raise TypeError("there is no program: give a text, or script=")
    return found


def _settings(options):
    """Options as the command has them: True sets one, a list sets it several times."""
    found = []
    for name, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is None or one is True:
                word = None
            elif one is False:
                word = b"no"
            else:
                word = _bytes(one if isinstance(one, (str, bytes)) else str(one))
            found.append((_bytes(name), word))
    return found


def _targets(command, pid):
    found = []
    if command is not None:
        found.append(_bytes(command) if isinstance(command, (str, bytes)) else [_bytes(word) for word in command])
    if pid is None:
        pids = []
    else:
        pids = [pid] if isinstance(pid, (str, bytes)) or not hasattr(pid, "__iter__") else pid
    return found + [_process(one) for one in pids]


def _process(pid):
    """The number of a process."""
    try:
        number = None if isinstance(pid, bool) else operator.index(pid)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"pid={pid!r} is no number of a process: give an int, or a list of them")
    if not 0 < number < 2**31:
        raise ValueError(f"pid={pid!r} is no number of a process: they are from 1 to {2**31 - 1}")
    return number


def _seconds(seconds):
    """How long to trace; None without an end."""
    if seconds is None:
        return None
    if isinstance(seconds, (str, bytes)):
        raise TypeError(f"seconds={seconds!r} is a text: give a number")
    number = float(seconds)
    if not 0 <= number < float("inf"):
        raise ValueError(
            f"seconds={seconds!r} is no time to trace: give a number from 0 on, or nothing to trace without an end"
        )
    return number


def _reader(reader):
    """The executable that reads symbols: that of the package, where no other is named."""
    return path() if reader is None else os.fspath(reader)


class Session:
    """A session that runs. Its events are what iterating gives, until it is over.

    It is over when its programs call exit(), when its targets have ended, or after ``stop()``. Leaving
    its ``with`` block closes it. Any thread may use it. A process that was forked from this one may
    not: every call is an error there.
    """

    def __init__(
        self,
        program=None,
        *,
        script=None,
        command=None,
        pid=None,
        args=(),
        options=None,
        text=False,
        reader=None,
    ):
        programs = _programs(program, script)
        settings = _settings(options or {})
        args = [_bytes(str(arg) if isinstance(arg, int) else arg) for arg in args]
        self._native = _dtrace.Session(programs, _targets(command, pid), args, settings, text, _reader(reader))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __iter__(self):
        return self

    def __next__(self):
        event = self._native.next()
        if event is None:
            raise StopIteration
        return event

    def next(self, timeout):
        """The next event. None: there is none within so many seconds, or the session is over."""
        return self._native.next(timeout)

    @property
    def is_over(self):
        """True when tracing is over; events may be left."""
        return self._native.is_over()

    def enable(self, program=None, *, script=None, args=()):
        """Enables more programs. They have the variables and aggregations of the session. Returns how
        many probes each matched. After an error the session continues unchanged."""
        args = [_bytes(str(arg) if isinstance(arg, int) else arg) for arg in args]
        return self._native.enable(_programs(program, script), args)

    def aggregations(self):
        """All aggregations as they are now, by name. The session goes on as without this call."""
        return {found.name: found for found in self._native.aggregations()}

    def text(self):
        """What the command would have printed since the last call, if the session was made with
        ``text=True``."""
        return self._native.take_text().decode("utf-8", "surrogateescape")

    def stop(self):
        """Stops the probes at once, whatever other threads do with the session. The events until
        then, and those of END, are left to be read."""
        self._native.stop()

    def finish(self):
        """Stops tracing and returns the result of all events that were not read before."""
        self.stop()
        return _gather(self)

    def close(self):
        """Stops tracing and closes what the session has in the kernel. Events that were not read are
        gone. Closing again does nothing."""
        self._native.close()


def session(
    program=None,
    *,
    script=None,
    command=None,
    pid=None,
    args=(),
    options=None,
    text=False,
    reader=None,
):
    """Begins a session, whose events come while it runs.

    ``program`` is a text in D or a list of them, ``script`` the name of a file or a list. ``command``
    is executed and traced as ``$target`` (a text that is split on blanks, or a list of words; no
    shell), ``pid`` is a process or a list of them. ``args`` are ``$1``, ``$2`` and so on. ``options``
    are those of ``-x`` by their names. With ``text``, ``Session.text`` has what the command would
    print. ``reader`` is the ``dtrace`` command that reads the symbols of processes, of this version:
    for a package that was built without it.
    """
    return Session(
        program,
        script=script,
        command=command,
        pid=pid,
        args=args,
        options=options,
        text=text,
        reader=reader,
    )


def run(
    program=None,
    *,
    seconds=None,
    script=None,
    command=None,
    pid=None,
    args=(),
    options=None,
    check=False,
    reader=None,
):
    """Traces, and returns the result.

    It ends after ``seconds``, when the programs call exit(), or when the targets have ended: one of
    these is needed. The other arguments are those of ``session``. With ``check``, dropped data is an
    error. After ^C the ``KeyboardInterrupt`` has what was found until then as its ``result``; a
    second ^C meanwhile gives that up.
    """
    seconds = _seconds(seconds)
    with Session(
        program,
        script=script,
        command=command,
        pid=pid,
        args=args,
        options=options,
        text=True,
        reader=reader,
    ) as running:
        events = []
        try:
            if seconds is not None:
                _read(running, events, time.monotonic() + seconds)
            found = _gather(running, events)
        except KeyboardInterrupt as interrupt:
            running.stop()
            interrupt.result = _gather(running, events)
            raise
        return _checked(found, check)


def _read(running, events, end):
    """Reads events until this time, or until tracing is over."""
    while True:
        event = running.next(max(0.0, end - time.monotonic()))
        if event is not None:
            events.append(event)
            if isinstance(event, End):
                return
        if time.monotonic() >= end:
            running.stop()
            return
        if event is None and running.is_over:
            return


def _gather(running, events=None):
    """The result of these events and the rest, which are added to them."""
    events = [] if events is None else events
    for event in running:
        events.append(event)
    return Result(events, running._native.take_text(), running._native)


def _checked(result, check):
    if check and result.drops:
        raise Error("; ".join(drop.text for drop in result.drops))
    return result
