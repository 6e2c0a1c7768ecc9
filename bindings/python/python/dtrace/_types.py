"""The classes of events and results. The module in Rust makes their objects."""

from collections import namedtuple


class Error(Exception):
    """An error of compiling, enabling or tracing.

    ``diagnostics`` has the errors in programs, each with its place; it is empty for other errors.
    """

    def __init__(self, text, diagnostics=()):
        super().__init__(text)
        self.diagnostics = tuple(diagnostics)

    def __reduce__(self):
        return type(self), (self.args[0], self.diagnostics)


class Diagnostic(namedtuple("Diagnostic", "script line column tag text help")):
    """An error in a program. ``script`` is None for a program that was given as text."""

    __slots__ = ()


class Probe(namedtuple("Probe", "id provider module function name")):
    """The names of a probe. Its text is the description."""

    __slots__ = ()

    def __str__(self):
        return f"{self.provider}:{self.module}:{self.function}:{self.name}"


class Symbol(
    namedtuple("Symbol", "text address process module name offset path file line inlined interpreted")
):
    """An address and its name; a frame of a stack. Its text is what the command prints."""

    __slots__ = ()

    def __str__(self):
        return self.text


class Stack(tuple):
    """The frames of a stack, the innermost first. ``process`` is None for a stack of the kernel."""

    def __new__(cls, frames=(), process=None):
        self = super().__new__(cls, frames)
        self.process = process
        return self

    def __reduce__(self):
        return type(self), (tuple(self), self.process)

    def __str__(self):
        return "\n".join(map(str, self))


class Bucket(namedtuple("Bucket", "low high count")):
    """Values from ``low`` to ``high``, both included; None where a bucket has no end."""

    __slots__ = ()

    @property
    def label(self):
        """The words that the command prints: the bound that is nearest to 0."""
        if self.low is None:
            return f"< {self.high + 1}"
        if self.high is None:
            return f">= {self.low}"
        return str(self.high if self.low < 0 and self.high < 0 else self.low)


class Distribution(namedtuple("Distribution", "function buckets")):
    """The value of quantize(), lquantize() and llquantize().

    ``buckets`` are all from the first that has values to the last.
    """

    __slots__ = ()

    @property
    def total(self):
        """How many values it has."""
        return sum(bucket.count for bucket in self.buckets)

    def __str__(self):
        total = sum(abs(bucket.count) for bucket in self.buckets)
        lines = []
        for bucket in self.buckets:
            # A bar is the share of all values, as the command draws it.
            bar = "@" * (round(40 * max(bucket.count, 0) / total) if total else 0)
            lines.append(f"{bucket.label:>16} |{bar:<40} {bucket.count}")
        return "\n".join(lines)

    def _repr_html_(self):
        from . import _html

        return _html.distribution(self)


class Row(namedtuple("Row", "key value")):
    """A key of an aggregation, a tuple, and its value: an int or a Distribution."""

    __slots__ = ()


class Growth(namedtuple("Growth", "key increment total")):
    """What an interval has added to a key, and what was added since the start."""

    __slots__ = ()


class Field(namedtuple("Field", "action name value text")):
    """What an action of a record has recorded.

    ``action`` is its word ("trace", "printf", ...), ``name`` the expression in the program. The
    value of printf() is the tuple of its arguments, and ``text`` what it prints.
    """

    __slots__ = ()


class Start(namedtuple("Start", "version time wall host release machine cpus")):
    """The session begins. ``time`` and ``wall`` are one moment, in nanoseconds of the clock of all
    times and since 1970."""

    __slots__ = ()


class Record(namedtuple("Record", "time cpu probe pid tid fields first last")):
    """What a clause has recorded in a firing.

    A record with printa() or system() comes in parts: ``first`` and ``last`` tell which.
    """

    __slots__ = ()

    @property
    def values(self):
        """The values of trace(), print() and the like, and the arguments of printf(), in order."""
        found = []
        for field in self.fields:
            if field.action == "printf":
                found.extend(field.value)
            elif field.action in ("trace", "print", "tracemem", "pcap"):
                found.append(field.value)
        return tuple(found)


class _Rows:
    """Rows with keys. ``rows[key]`` is that of a key: a tuple, or the only column of one."""

    __slots__ = ()

    def __iter__(self):
        return iter(self.rows)

    def __len__(self):
        return len(self.rows)

    def _find(self, key):
        for row in self.rows:
            if row.key == key or row.key == (key,):
                return row
        return None

    def __contains__(self, key):
        return self._find(key) is not None

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self):
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"

    def __reduce__(self):
        return type(self), tuple(getattr(self, name) for name in self.__slots__)

    def to_pandas(self):
        """A DataFrame: a column for each of the key, and the values. Of a distribution, a row for
        each bucket that has values."""
        from . import _tables

        return _tables.rows(self)


class Aggregation(_Rows):
    """The rows of an aggregation.

    ``name`` is without the @, and "_" for the bare one; ``keys`` are the expressions of the key in
    the program; ``aggregation[key]`` is the value of a key.
    """

    __slots__ = ("name", "function", "keys", "rows", "time", "occasion")

    def __init__(self, name, function, keys, rows, time, occasion):
        self.name = name
        self.function = function
        self.keys = keys
        self.rows = rows
        self.time = time
        self.occasion = occasion

    def __getitem__(self, key):
        row = self._find(key)
        if row is None:
            raise KeyError(key)
        return row.value

    def get(self, key, default=None):
        """The value of a key, or something else where it is not there."""
        row = self._find(key)
        return default if row is None else row.value

    def to_dict(self):
        """The values by key: a key of one column by that."""
        return {row.key[0] if len(row.key) == 1 else row.key: row.value for row in self.rows}

    def _repr_html_(self):
        from . import _html

        return _html.aggregation(self)


class Interval(_Rows):
    """What the time from ``begin`` to ``end`` has added to an aggregation (option ``every``).

    ``wall`` is the end in nanoseconds since 1970; ``unsigned``: its numbers are those of unsigned values.
    """

    __slots__ = ("begin", "end", "name", "function", "keys", "rows", "wall", "unsigned")

    def __init__(self, begin, end, name, function, keys, rows, wall=0, unsigned=False):
        self.begin = begin
        self.end = end
        self.name = name
        self.function = function
        self.keys = keys
        self.rows = rows
        self.wall = wall
        self.unsigned = unsigned

    def __getitem__(self, key):
        row = self._find(key)
        if row is None:
            raise KeyError(key)
        return row


class Effect(namedtuple("Effect", "action text")):
    """What a program has done to the output: system(), freopen() or ftruncate()."""

    __slots__ = ()


class Fault(namedtuple("Fault", "time cpu probe number value count text")):
    """A clause faulted. ``number`` is that of DTRACEFLT_*, ``value`` the address or what was wrong."""

    __slots__ = ()

    def __str__(self):
        return self.text


class Drop(namedtuple("Drop", "kind cpu count time text")):
    """Data was dropped."""

    __slots__ = ()

    def __str__(self):
        return self.text


class Suppressed(namedtuple("Suppressed", "program cpu count time text")):
    """The kernel suppressed firings: at most so many."""

    __slots__ = ()

    def __str__(self):
        return self.text


class Notice(namedtuple("Notice", "kind text time")):
    """A message of the session."""

    __slots__ = ()

    def __str__(self):
        return self.text


class Report(namedtuple("Report", "text")):
    """A text that is part of the output besides the results."""

    __slots__ = ()


class End(namedtuple("End", "status")):
    """The session has ended, with the argument of exit() or 0."""

    __slots__ = ()
