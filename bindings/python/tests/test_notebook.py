"""What a notebook shows."""

import sys
from html.parser import HTMLParser

import dtrace
import pytest

NASTY = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "a\nb",
    "a\u202eb",
    "a\udcffb",
    "{{x}}",
    "%s%n",
    "a\0b",
    "x" * 4096,
    "&lt;b&gt;",
    "",
]


class Seen(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts, self.frames, self.widths = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attrs = dict(attrs)
        assert not any(name.startswith("on") for name in attrs), attrs
        if tag == "iframe":
            self.frames.append(attrs)
        if attrs.get("class") == "bar":
            self.widths.append(attrs["style"])

    def handle_data(self, data):
        self.texts.append(data)


ALLOWED = {"style", "div", "h4", "table", "tr", "th", "td", "span", "p", "pre", "iframe"}


def result(*events, text=b""):
    return dtrace.Result(events, text)


def counted(rows, name="_", keys=("execname",)):
    rows = tuple(dtrace.Row((key,), value) for key, value in rows)
    return dtrace.Aggregation(name, "count", keys, rows, 1, "end")


@pytest.mark.parametrize("name", NASTY)
def test_names_are_text_whatever_is_in_them(name):
    spread = dtrace.Distribution("quantize", (dtrace.Bucket(1, 1, 3),))
    symbol = dtrace.Symbol(name, 1, 2, name, name, 0, name, name, 1, False, False)
    events = [
        counted([(name, 5)], name=name, keys=(name,)),
        counted([(symbol, spread)], name="s"),
        dtrace.Drop("principal", 0, 1, 1, name),
    ]
    page = result(*events, text=(name + "\n").encode("utf-8", "surrogateescape"))._repr_html_()
    seen = Seen(page)
    assert set(seen.tags) <= ALLOWED and not seen.frames
    page.encode("utf-8")
    assert "\u202e" not in page and "\0" not in page
    if name.isprintable() and 0 < len(name) < 100:
        assert sum(text == name for text in seen.texts) >= 4, seen.texts


def test_counts_have_bars():
    seen = Seen(result(counted([("a", 1), ("b", 4)]))._repr_html_())
    assert seen.widths == ["width:12.00em", "width:3.00em"]
    assert [text for text in seen.texts if text in ("a", "b", "1", "4")] == ["b", "4", "a", "1"]
    assert Seen(result(counted([("a", 0), ("b", -4)]))._repr_html_()).widths == ["width:0.00em"] * 2


def test_distributions_have_bars():
    buckets = (dtrace.Bucket(None, -1, 1), dtrace.Bucket(0, 4, 0), dtrace.Bucket(5, None, 4))
    spread = dtrace.Distribution("lquantize", buckets)
    for page in (spread._repr_html_(), counted([("a", spread)])._repr_html_()):
        seen = Seen(page)
        assert seen.widths == ["width:3.00em", "width:0.00em", "width:12.00em"]
        assert "< 0" in "".join(seen.texts) and ">= 5" in "".join(seen.texts)


def test_long_tables_end_with_what_is_left():
    seen = Seen(result(counted([(str(n), n) for n in range(250)]))._repr_html_())
    assert seen.tags.count("tr") == 101 and "150 more" in seen.texts


def test_stacks_are_a_flame_graph_in_a_frame(calls):
    found = dtrace.run("syscall::getppid:entry /pid == $target/ { @[stack()] = count(); }", command=calls(5))
    seen = Seen(found._repr_html_())
    (frame,) = seen.frames
    # Its scripts have an origin of their own.
    assert frame["sandbox"] == "allow-scripts" and "<script" in frame["srcdoc"]
    assert set(seen.tags) <= ALLOWED and "table" not in seen.tags


def test_stacks_are_a_table_where_no_picture_can_be_drawn(calls):
    found = dtrace.run("syscall::getppid:entry /pid == $target/ { @[stack()] = count(); }", command=calls(5))
    with pytest.raises(dtrace.Error):
        found._native._panic()
    seen = Seen(found._repr_html_())
    assert not seen.frames and "table" in seen.tags and "5" in seen.texts


def test_distributions_over_time_are_a_heat_map(calls):
    program = "syscall::getppid:entry /pid == $target/ { @[execname] = quantize(timestamp % 1000); }"
    found = dtrace.run(program, command=calls(500), options={"every": "10ms"})
    seen = Seen(found._repr_html_())
    (frame,) = seen.frames
    assert "<svg" in frame["srcdoc"] and "table" in seen.tags


def test_records_are_shown_as_their_text():
    found = dtrace.run('BEGIN { printf("<b>%d\\n", 5); exit(0); }')
    seen = Seen(found._repr_html_())
    assert "<b>5" in "".join(seen.texts) and "b" not in seen.tags
    assert repr(found) == "<dtrace.Result no aggregations, 1 records>"


def test_pandas_is_not_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    found = result(counted([("a", 1)]))
    assert "<table" in found._repr_html_()
    with pytest.raises(ImportError):
        found.to_pandas()
