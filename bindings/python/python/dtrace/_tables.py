"""Results as DataFrames of pandas, which is imported here only."""

from ._types import Aggregation, Distribution, Stack, Symbol


def _cell(value):
    return str(value) if isinstance(value, (Stack, Symbol)) else value


def _names(wanted, count, taken):
    """A name for each column of the key: its expression, where that is known and its own."""
    found = []
    for n in range(count):
        name = wanted[n] if n < len(wanted) and wanted[n] else f"key{n + 1}"
        while name in found or name in taken:
            name += "_"
        found.append(name)
    return found


def rows(found):
    import pandas

    count = len(found.rows[0].key) if found.rows else len(found.keys)
    parts = ["value"] if isinstance(found, Aggregation) else ["increment", "total"]
    spread = any(isinstance(getattr(row, parts[0]), Distribution) for row in found)
    columns = ["low", "high", "count"] if spread else parts
    names = _names(found.keys, count, columns)
    lines = []
    for row in found:
        key = [_cell(value) for value in row.key]
        if spread:
            lines.extend([*key, *bucket] for bucket in getattr(row, parts[0]).buckets if bucket.count)
        else:
            lines.append(key + [getattr(row, part) for part in parts])
    frame = pandas.DataFrame(lines, columns=names + columns, dtype=object)
    # The bounds of buckets that have no end are missing, and the others exact.
    exact = {name: "Int64" for name in columns}
    return frame.astype(exact).infer_objects()


def records(found):
    import pandas

    count = max((len(record.values) for record in found), default=0)
    wanted = []
    for field in found[0].fields if found else ():
        if field.action == "printf":
            wanted.extend([""] * len(field.value))
        else:
            wanted.append(field.name)
    fixed = ["time", "cpu", "probe", "pid", "tid"]
    names = [f"value{n + 1}" if name.startswith("key") else name for n, name in enumerate(_names(wanted, count, fixed))]
    lines = []
    for record in found:
        values = [_cell(value) for value in record.values]
        values += [None] * (count - len(values))
        lines.append([record.time, record.cpu, str(record.probe), record.pid, record.tid, *values])
    return pandas.DataFrame(lines, columns=fixed + names, dtype=object).infer_objects()
