import os
from typing import Any, Iterator, Literal, NamedTuple, Sequence, Union

__version__: str
__all__: list[str]

_Text = Union[str, bytes]
_Texts = Union[_Text, Sequence[_Text]]
_Path = Union[str, bytes, os.PathLike[str]]
_Value = Union[int, str, bytes, Symbol, Stack, None]
_Key = tuple[_Value, ...]
_Setting = Union[None, bool, int, float, _Text]
_Event = Union[
    Start, Record, Aggregation, Interval, Effect, Fault, Drop, Suppressed, Notice, Report, End
]

class Error(Exception):
    diagnostics: tuple[Diagnostic, ...]
    def __init__(self, text: str, diagnostics: Sequence[Diagnostic] = ...) -> None: ...

class Diagnostic(NamedTuple):
    script: str | None
    line: int | None
    column: int | None
    tag: str
    text: str
    help: tuple[str, ...]

class Probe(NamedTuple):
    id: int
    provider: str
    module: str
    function: str
    name: str

class Symbol(NamedTuple):
    text: str
    address: int
    process: int | None
    module: str | None
    name: str | None
    offset: int
    path: str | None
    file: str | None
    line: int | None
    inlined: bool
    interpreted: bool

class Stack(tuple[Symbol, ...]):
    process: int | None
    def __new__(cls, frames: Sequence[Symbol] = ..., process: int | None = None) -> Stack: ...

class Bucket(NamedTuple):
    low: int | None
    high: int | None
    count: int
    @property
    def label(self) -> str: ...

class Distribution(NamedTuple):
    function: str
    buckets: tuple[Bucket, ...]
    @property
    def total(self) -> int: ...

class Row(NamedTuple):
    key: _Key
    value: int | Distribution

class Growth(NamedTuple):
    key: _Key
    increment: int | Distribution
    total: int | Distribution

class Field(NamedTuple):
    action: str
    name: str
    value: _Value | tuple[_Value, ...]
    text: str | None

class Start(NamedTuple):
    version: str
    time: int
    wall: int
    host: str
    release: str
    machine: str
    cpus: int

class Record(NamedTuple):
    time: int
    cpu: int
    probe: Probe
    pid: int | None
    tid: int | None
    fields: tuple[Field, ...]
    first: bool
    last: bool
    @property
    def values(self) -> tuple[_Value, ...]: ...

class Aggregation:
    name: str
    function: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    time: int | None
    occasion: Literal["printa", "end", "demand"]
    def __init__(
        self,
        name: str,
        function: str,
        keys: tuple[str, ...],
        rows: tuple[Row, ...],
        time: int | None,
        occasion: str,
    ) -> None: ...
    def __iter__(self) -> Iterator[Row]: ...
    def __len__(self) -> int: ...
    def __contains__(self, key: object) -> bool: ...
    def __getitem__(self, key: object) -> int | Distribution: ...
    def get(self, key: object, default: Any = None) -> Any: ...
    def to_dict(self) -> dict[Any, int | Distribution]: ...
    def to_pandas(self) -> Any: ...

class Interval:
    begin: int
    end: int
    name: str
    function: str
    keys: tuple[str, ...]
    rows: tuple[Growth, ...]
    wall: int
    unsigned: bool
    def __init__(
        self,
        begin: int,
        end: int,
        name: str,
        function: str,
        keys: tuple[str, ...],
        rows: tuple[Growth, ...],
        wall: int = 0,
        unsigned: bool = False,
    ) -> None: ...
    def __iter__(self) -> Iterator[Growth]: ...
    def __len__(self) -> int: ...
    def __contains__(self, key: object) -> bool: ...
    def __getitem__(self, key: object) -> Growth: ...
    def to_pandas(self) -> Any: ...

class Effect(NamedTuple):
    action: Literal["system", "freopen", "ftruncate"]
    text: str | None

class Fault(NamedTuple):
    time: int
    cpu: int
    probe: Probe | None
    number: int
    value: int
    count: int
    text: str

class Drop(NamedTuple):
    kind: str
    cpu: int
    count: int
    time: int | None
    text: str

class Suppressed(NamedTuple):
    program: str
    cpu: int | None
    count: int
    time: int | None
    text: str

class Notice(NamedTuple):
    kind: str
    text: str
    time: int | None

class Report(NamedTuple):
    text: str

class End(NamedTuple):
    status: int

class Result:
    events: list[_Event]
    text: str
    aggregations: dict[str, Aggregation]
    status: int
    start: Start | None
    def __init__(self, events: Sequence[_Event], text: bytes, native: Any = None) -> None: ...
    @property
    def records(self) -> list[Record]: ...
    @property
    def intervals(self) -> list[Interval]: ...
    @property
    def drops(self) -> list[Drop]: ...
    @property
    def faults(self) -> list[Fault]: ...
    @property
    def suppressed(self) -> list[Suppressed]: ...
    @property
    def notices(self) -> list[Notice]: ...
    def __iter__(self) -> Iterator[Row]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> Aggregation: ...
    def to_pandas(self) -> Any: ...
    def flame_graph(self, file: str = "x.html") -> bytes | None: ...
    def heat_map(self, file: str = "x.html") -> bytes | None: ...

class Session:
    def __init__(
        self,
        program: _Texts | None = None,
        *,
        script: _Path | Sequence[_Path] | None = None,
        command: _Texts | None = None,
        pid: int | Sequence[int] | None = None,
        args: Sequence[_Text | int] = ...,
        options: dict[str, _Setting | Sequence[_Setting]] | None = None,
        text: bool = False,
        reader: _Path | None = None,
    ) -> None: ...
    def __enter__(self) -> Session: ...
    def __exit__(self, *_: object) -> None: ...
    def __iter__(self) -> Iterator[_Event]: ...
    def __next__(self) -> _Event: ...
    def next(self, timeout: float) -> _Event | None: ...
    @property
    def is_over(self) -> bool: ...
    def enable(
        self,
        program: _Texts | None = None,
        *,
        script: _Path | Sequence[_Path] | None = None,
        args: Sequence[_Text | int] = ...,
    ) -> list[int]: ...
    def aggregations(self) -> dict[str, Aggregation]: ...
    def text(self) -> str: ...
    def stop(self) -> None: ...
    def finish(self) -> Result: ...
    def close(self) -> None: ...

def session(
    program: _Texts | None = None,
    *,
    script: _Path | Sequence[_Path] | None = None,
    command: _Texts | None = None,
    pid: int | Sequence[int] | None = None,
    args: Sequence[_Text | int] = ...,
    options: dict[str, _Setting | Sequence[_Setting]] | None = None,
    text: bool = False,
    reader: _Path | None = None,
) -> Session: ...
def run(
    program: _Texts | None = None,
    *,
    seconds: float | None = None,
    script: _Path | Sequence[_Path] | None = None,
    command: _Texts | None = None,
    pid: int | Sequence[int] | None = None,
    args: Sequence[_Text | int] = ...,
    options: dict[str, _Setting | Sequence[_Setting]] | None = None,
    check: bool = False,
    reader: _Path | None = None,
) -> Result: ...
