"""What a session has found."""

from ._types import (
    Aggregation,
    Distribution,
    Drop,
    End,
    Fault,
    Interval,
    Notice,
    Record,
    Stack,
    Start,
    Suppressed,
)


class Result:
    """What a session has found. Iterating gives the rows of its aggregations.

    ``aggregations`` are by name, as they were last; ``records``, ``intervals``, ``drops``,
    ``faults``, ``suppressed`` and ``notices`` are lists of events, ``events`` has all of them.
    ``text`` is what the command would print, and ``status`` the argument of exit(). Pictures are
    drawn while this process has the result; a copy by pickle has none.
    """

    def __init__(self, events, text, native=None):
        self.events = list(events)
        self.text = text.decode("utf-8", "surrogateescape")
        self._native = native
        self.aggregations = {}
        self.status = 0
        self.start = None
        for event in self.events:
            if isinstance(event, Aggregation):
                self.aggregations[event.name] = event
            elif isinstance(event, End):
                self.status = event.status
            elif isinstance(event, Start):
                self.start = event

    def __reduce__(self):
        return type(self), (self.events, self.text.encode("utf-8", "surrogateescape"))

    def _all(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def records(self):
        """What clauses have recorded."""
        return self._all(Record)

    @property
    def intervals(self):
        """What intervals have added to aggregations (option ``every``)."""
        return self._all(Interval)

    @property
    def drops(self):
        """Data that was dropped."""
        return self._all(Drop)

    @property
    def faults(self):
        """Faults of clauses."""
        return self._all(Fault)

    @property
    def suppressed(self):
        """Firings that the kernel suppressed."""
        return self._all(Suppressed)

    @property
    def notices(self):
        """Messages of the session."""
        return self._all(Notice)

    def __iter__(self):
        for aggregation in self.aggregations.values():
            yield from aggregation

    def __len__(self):
        return sum(map(len, self.aggregations.values()))

    def __getitem__(self, name):
        """An aggregation by its name, with or without the @."""
        return self.aggregations[name.lstrip("@") or "_"]

    def __repr__(self):
        counts = ", ".join(f"@{name}: {len(found)} rows" for name, found in self.aggregations.items())
        return f"<dtrace.Result {counts or 'no aggregations'}, {len(self.records)} records>"

    def __str__(self):
        return self.text

    def to_pandas(self):
        """A DataFrame: of the aggregation, if there is one, else of the records."""
        from . import _tables

        if len(self.aggregations) > 1:
            names = ", ".join(self.aggregations)
            raise ValueError(f"there are several aggregations ({names}): use result[NAME].to_pandas()")
        for found in self.aggregations.values():
            return found.to_pandas()
        return _tables.records(self.records)

    def flame_graph(self, file="x.html"):
        """The stacks in keys of aggregations in the format of files with this name, as bytes; None if
        there are none. The endings are .svg, .html, .folded, .pb.gz and .speedscope.json."""
        return self._draw("draw_stacks", file)

    def heat_map(self, file="x.html"):
        """The distributions over time (option ``every``) in the format of files with this name, .svg
        or .html, as bytes; None if there are none."""
        return self._draw("draw_heat", file)

    def _draw(self, what, file):
        if self._native is None:
            raise ValueError("a copy of a result has no pictures")
        return getattr(self._native, what)(file)

    def _has_stacks(self):
        rows = (row for found in self.aggregations.values() for row in found)
        return any(isinstance(value, Stack) for row in rows for value in row.key)

    def _has_heat(self):
        return any(isinstance(row.total, Distribution) for event in self.intervals for row in event)

    def _repr_html_(self):
        from . import _html

        return _html.result(self)
