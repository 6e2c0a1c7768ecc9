"""Results as DataFrames."""

import dtrace
import pytest

pandas = pytest.importorskip("pandas")


def test_an_aggregation_is_a_frame(calls):
    program = "syscall::getppid:entry /pid == $target/ { @[probefunc, pid == $target] = sum(3); }"
    frame = dtrace.run(program, command=calls(100)).to_pandas()
    assert list(frame.columns) == ["probefunc", "pid == $target", "value"]
    assert frame.values.tolist() == [["getppid", 1, 300]] and frame["value"].sum() == 300


def test_a_distribution_has_a_line_for_each_bucket():
    program = "BEGIN { @[1] = lquantize(-1, 0, 10, 5); @[1] = lquantize(7, 0, 10, 5); @[1] = lquantize(8, 0, 10, 5); exit(0); }"
    frame = dtrace.run(program).to_pandas()
    assert list(frame.columns)[1:] == ["low", "high", "count"]
    assert frame["count"].tolist() == [1, 2] and frame["high"].tolist() == [-1, 9]
    assert frame["low"].isna().tolist() == [True, False]


def test_integers_stay_exact():
    frame = dtrace.run("BEGIN { @[(uint64_t)-1] = max(0x7fffffffffffffff); exit(0); }").to_pandas()
    assert int(frame.iloc[0, 0]) == 2**64 - 1 and int(frame["value"].iloc[0]) == 2**63 - 1


def test_records_are_a_frame():
    frame = dtrace.run('BEGIN { trace(pid); printf("%s", "x"); exit(0); }').to_pandas()
    assert list(frame.columns) == ["time", "cpu", "probe", "pid", "tid", "pid_", "value2"]
    assert frame["value2"].tolist() == ["x"] and len(frame) == 1


def test_several_aggregations_are_frames_by_their_names():
    result = dtrace.run("BEGIN { @a[1] = count(); @b = count(); exit(0); }")
    with pytest.raises(ValueError, match="several aggregations"):
        result.to_pandas()
    assert result["a"].to_pandas()["value"].tolist() == [1] and len(result["b"].to_pandas()) == 1


def test_intervals_are_frames(calls):
    program = "syscall::getppid:entry /pid == $target/ { @[execname] = count(); }"
    result = dtrace.run(program, command=calls(100), options={"every": "10ms"})
    frame = pandas.concat(event.to_pandas() for event in result.intervals)
    assert frame["increment"].sum() == 100 and list(frame.columns) == ["execname", "increment", "total"]
