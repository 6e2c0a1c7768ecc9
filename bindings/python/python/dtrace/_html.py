"""Results in a notebook. Every name is text: processes choose them."""

from html import escape

from ._types import Distribution, Error, Stack

# The most rows and records of a table, and the most characters of a cell.
_ROWS = 100
_CELL = 500

_STYLE = (
    "<style>.dtrace td,.dtrace th{text-align:left!important;vertical-align:top;white-space:pre-wrap;"
    "font-family:monospace}.dtrace .bar{background:#4a7fb5;height:.8em;min-width:1px;display:inline-block}"
    ".dtrace .loss{color:#b00}</style>"
)


def _text(value):
    text = str(value) if not isinstance(value, bytes) else value.hex()
    if len(text) > _CELL:
        text = text[:_CELL] + "…"
    # Neither half of a pair nor what a browser would act on.
    shown = "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)
    return escape(shown)


def _bar(value, most):
    share = max(value, 0) / most if most > 0 else 0
    return f'<td><span class="bar" style="width:{12 * share:.2f}em"></span></td>'


def _buckets(found):
    most = max((bucket.count for bucket in found.buckets), default=0)
    for bucket in found.buckets:
        yield f"<tr><td>{_text(bucket.label)}</td>{_bar(bucket.count, most)}<td>{bucket.count}</td></tr>"


def distribution(found):
    return f'{_STYLE}<table class="dtrace">{"".join(_buckets(found))}</table>'


def _left(count):
    return f"<p>{count} more</p>" if count > 0 else ""


def _aggregation(found):
    title = "@" if found.name == "_" else f"@{found.name}"
    parts = [f"<h4>{_text(title)} = {_text(found.function)}()</h4>"]
    # As text has them: the greatest last. A table is read from its beginning.
    rows = list(reversed(found.rows))
    numbers = [row.value for row in rows if isinstance(row.value, int)]
    most = max(numbers, default=0)
    width = len(rows[0].key) if rows else 0
    names = [found.keys[n] if n < len(found.keys) else "" for n in range(width)]
    head = "".join(f"<th>{_text(name)}</th>" for name in [*names, "", found.function])
    parts.append(f'<table class="dtrace"><tr>{head}</tr>')
    for row in rows[:_ROWS]:
        key = "".join(f"<td>{_text(value)}</td>" for value in row.key)
        if isinstance(row.value, Distribution):
            parts.append(f'<tr>{key}<td colspan="2"><table>{"".join(_buckets(row.value))}</table></td></tr>')
        else:
            parts.append(f"<tr>{key}{_bar(row.value, most)}<td>{row.value}</td></tr>")
    parts.append(f"</table>{_left(len(rows) - _ROWS)}")
    return "".join(parts)


def aggregation(found):
    return _STYLE + _aggregation(found)


def _frame(page):
    """A picture in a frame of its own, whose script reaches nothing of the notebook."""
    page = escape(page.decode("utf-8", "replace"))
    return f'<iframe sandbox="allow-scripts" style="width:100%;height:32em;border:0" srcdoc="{page}"></iframe>'


def _has_stack(found):
    return any(isinstance(value, Stack) for row in found for value in row.key)


def _drawn(draw):
    """A picture; None where there is none: in a forked child, or after an internal error."""
    try:
        return draw("x.html")
    except Error:
        return None


def result(found):
    parts = [_STYLE]
    drawn = set()
    if found._native is not None and found._has_heat():
        page = _drawn(found.heat_map)
        if page:
            parts.append(_frame(page))
    if found._native is not None and found._has_stacks():
        page = _drawn(found.flame_graph)
        if page:
            parts.append(_frame(page))
            drawn = {name for name, rows in found.aggregations.items() if _has_stack(rows)}
    for name, rows in found.aggregations.items():
        if name not in drawn:
            parts.append(_aggregation(rows))
    records = found.records
    if found.text.strip() and (records or not found.aggregations):
        lines = found.text.rstrip("\n").split("\n")
        parts.append(f"<pre>{_text_lines(lines[:_ROWS])}</pre>{_left(len(lines) - _ROWS)}")
    for event in [*found.drops, *found.faults, *found.suppressed][:_ROWS]:
        parts.append(f'<p class="dtrace loss">{_text(event.text)}</p>')
    return f'<div class="dtrace">{"".join(parts)}</div>'


def _text_lines(lines):
    return "\n".join(_text(line) for line in lines)
