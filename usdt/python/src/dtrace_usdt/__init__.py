"""Probes that a program makes while it runs (dynamic USDT), for dtrace, bpftrace and gdb.

    provider = Provider("myapp")
    request = provider.probe("request-start", "int id, char *path")
    provider.enable()

    request(42, "/index.html")              # does nothing while nobody traces the probe
    if request.enabled:                     # where arguments are expensive
        request(42, compute_path())

    # dtrace -n 'myapp*:::request-start { printf("%d %s", arg0, copyinstr(arg1)); }'
"""

from ._native import Probe, Provider as _Provider

__all__ = ["Provider", "Probe"]

_TYPES = {int: "int64_t", str: "char *", bool: "bool"}


class Provider(_Provider):
    """A provider and its probes. They are there until the provider and all its probes are no longer referred to."""

    def probe(self, name, *types):
        """Adds a probe. Its types are those of C in one text ("int id, char *path"), or int, str and bool each by itself."""
        return self._probe(name, ", ".join(t if isinstance(t, str) else self._type(t) for t in types))

    @staticmethod
    def _type(python_type):
        try:
            return _TYPES[python_type]
        except (KeyError, TypeError):
            raise TypeError(f"the type of an argument is int, str, bool or a text of C, not {python_type!r}") from None
