"""dtrace.run(): programs and workloads of known size, and exactly what must be found."""

import os
import pathlib
import pickle
import subprocess
import sys

import dtrace
import pytest

GETPPID = "syscall::getppid:entry /pid == $target/ "


def test_a_count_is_exact(calls):
    result = dtrace.run(GETPPID + "{ @[execname, probefunc] = count(); }", command=calls(1000))
    (row,) = result
    assert row.value == 1000 and row.key[1] == "getppid"
    assert result["@"].keys == ("execname", "probefunc") and result["@"].function == "count"
    assert result.status == 0 and not result.drops and not result.faults


def test_rows_are_found_by_their_keys(calls):
    program = GETPPID + "{ @n[pid, 7] = count(); @one[probename] = sum(2); @ = max(3); }"
    result = dtrace.run(program, command=calls(10))
    ((pid, seven),) = [row.key for row in result["n"]]
    assert seven == 7 and result["n"][pid, 7] == 10 and (pid, 7) in result["@n"]
    assert result["one"]["entry"] == 20 and result["one"].to_dict() == {"entry": 20}
    assert result["one"].get("return") is None and "return" not in result["one"]
    assert result["@"][()] == 3 and len(result) == 3
    with pytest.raises(KeyError):
        result["one"]["return"]


def test_words_of_a_command_are_arguments_whatever_is_in_them():
    words = [sys.executable, "-c", "import sys; sys.exit(len(sys.argv[1]))", "a b\tc"]
    result = dtrace.run("syscall::exit_group:entry /pid == $target/ { trace(arg0); }", command=words)
    assert [record.values for record in result.records] == [(5,)]
    assert result.records[0].probe.function == "exit_group"


def test_a_text_of_a_command_is_split_on_blanks():
    result = dtrace.run("syscall::exit_group:entry /pid == $target/ { @ = count(); }", command="sleep  0")
    assert [row.value for row in result] == [1]


def test_a_process_that_runs_is_traced():
    words = [sys.executable, "-c", "import os\ninput()\nfor _ in range(500): os.getppid()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as child:
        with dtrace.session(GETPPID + "{ @ = count(); }", pid=child.pid) as session:
            child.stdin.write(b"\n")
            child.stdin.close()
            *_, last, end = session
    assert [row.value for row in last] == [500] and end == dtrace.End(0)


def test_a_run_ends_after_its_seconds():
    result = dtrace.run("BEGIN { @ = count(); }", seconds=0.05)
    assert [row.value for row in result] == [1] and isinstance(result.events[-1], dtrace.End)


def test_a_run_ends_by_exit_with_its_status():
    result = dtrace.run('BEGIN { printf("%d %s\\n", -3, "x"); exit(3); }', seconds=100)
    assert result.status == 3 and result.text.startswith("-3 x\n")
    printf, exits = result.records[0].fields
    assert (printf.action, printf.value, printf.text) == ("printf", (-3, "x"), "-3 x\n")
    assert (exits.action, exits.value) == ("exit", 3)


def test_integers_are_exact_by_their_types():
    program = """BEGIN {
        trace((uint64_t)-1); trace((int64_t)1 << 63); trace((int64_t)-1);
        trace((uint8_t)200); trace((int8_t)-1); trace(0x7fffffffffffffff); exit(0);
    }"""
    (record,) = dtrace.run(program).records
    assert record.values == (2**64 - 1, -(2**63), -1, 200, -1, 2**63 - 1)


def test_bytes_that_are_no_text_come_back():
    text = "a\udcff\udc80"
    (record,) = dtrace.run('BEGIN { trace("\\377b"); trace($$1); exit(0); }', args=[text]).records
    assert record.values == ("\udcffb", text)
    assert os.fsencode(record.values[1]) == b"a\xff\x80"


def test_a_process_may_have_any_name():
    program = "import os\nopen('/proc/self/comm', 'wb').write(b'x\\xff<b>\\n')\nos.getppid()"
    result = dtrace.run(GETPPID + "{ @[execname] = count(); }", command=[sys.executable, "-c", program])
    assert result["@"].to_dict() == {"x\udcff<b>\n": 1}


def test_distributions_have_their_buckets():
    program = """BEGIN {
        @q = quantize(-5); @q = quantize(0); @q = quantize(5); @q = quantize(4);
        @l = lquantize(-1, 0, 10, 5); @l = lquantize(7, 0, 10, 5); @l = lquantize(10, 0, 10, 5);
        @ll = llquantize(35, 10, 0, 2, 10); exit(0);
    }"""
    result = dtrace.run(program)
    spread = {name: found[()] for name, found in result.aggregations.items()}
    full = [bucket for bucket in spread["q"].buckets if bucket.count]
    assert full == [(-7, -4, 1), (0, 0, 1), (4, 7, 2)] and spread["q"].total == 4
    # The empty ones between are there.
    assert len(spread["q"].buckets) == 7
    assert spread["l"].buckets == ((None, -1, 1), (0, 4, 0), (5, 9, 1), (10, None, 1))
    assert [bucket.label for bucket in spread["l"].buckets] == ["< 0", "0", "5", ">= 10"]
    assert spread["ll"].buckets == ((30, 39, 1),) and spread["ll"].function == "llquantize"
    assert [line.count("@") for line in str(spread["l"]).splitlines()] == [13, 0, 13, 13]
    assert str(spread["ll"]) == f"{30:>16} |{'@' * 40} 1"


def test_several_aggregations_of_a_printa_are_each_their_own():
    program = 'BEGIN { @a[1] = count(); @b[1] = sum(5); @b[2] = sum(6); printa("%d %@d %@d\\n", @a, @b); exit(0); }'
    result = dtrace.run(program)
    assert result["a"].to_dict() == {1: 1} and result["b"].to_dict() == {1: 5, 2: 6}


def test_what_a_printa_has_printed_grows_until_the_end(calls):
    program = "BEGIN { @ = count(); printa(@); } " + GETPPID + "{ @ = count(); }"
    result = dtrace.run(program, command=calls(20))
    assert result["@"][()] == 21
    # The text is that of the command: what was printed once is not printed again.
    assert result.text.count("1") == 1, result.text


def test_options_are_those_of_the_command():
    result = dtrace.run("BEGIN { trace(pid); exit(0); }", options={"quiet": False, "bufsize": "4m"})
    assert ":BEGIN" in result.text
    (record,) = result.records
    assert record.pid == os.getpid()
    result = dtrace.run("BEGIN { exit(0); }", command="true", options={"setenv": ["A=1", "B=2"], "stackframes": 5})
    assert result.status == 0
    with pytest.raises(dtrace.Error, match="failed to set bufsiez=4m: Invalid option name.*did you mean bufsize"):
        dtrace.run("BEGIN { exit(0); }", options={"bufsiez": "4m"})
    with pytest.raises(dtrace.Error, match="every=foo: .*a time with its unit, as in 100ms, 1s or 10hz") as failed:
        dtrace.run("BEGIN { exit(0); }", options={"every": "foo"})
    assert failed.value.diagnostics[0].tag == "D_PRAGMA_OPTSET"


@pytest.mark.parametrize(
    ("option", "works"),
    [
        ("listen=127.0.0.1:0", "dtrace -x listen serves it"),
        ("otlp=http://localhost:4318", "every gives a program what is sent"),
        ("otlpprofiles=http://localhost:4318", "dtrace -x otlpprofiles sends it"),
        ("graphite=localhost:2003", "dtrace -x graphite sends it"),
        ("events=unix:/tmp/nowhere", "a program has the events itself"),
        ("oformat=json", "a program has results as events"),
        ("slices=a:::x(1)..a:::y(1)", "dtrace --to FILE.pftrace writes timelines"),
        ("from=1s", "dtrace --replay FILE begins there"),
        ("verbose", "dtrace -S prints it"),
    ],
)
def test_options_that_only_the_command_obeys_are_refused(option, works):
    name, _, value = option.partition("=")
    with pytest.raises(dtrace.Error, match=f"failed to set {name}.*the command dtrace alone") as failed:
        dtrace.session("BEGIN { exit(0); }", options={name: value or True})
    (found,) = failed.value.diagnostics
    assert found.tag == "D_PRAGMA_OPTSET" and works in found.text, found
    with pytest.raises(dtrace.Error) as failed:
        dtrace.session(f"\n#pragma D option {option}\nBEGIN {{ exit(0); }}")
    (found,) = failed.value.diagnostics
    assert (found.line, found.tag) == (2, "D_PRAGMA_OPTSET") and works in found.help[0], found


def test_errors_have_their_places(tmp_path):
    with pytest.raises(dtrace.Error) as failed:
        dtrace.run("BEGIN {\n  x = nothing_such; }")
    (found,) = failed.value.diagnostics
    assert (found.script, found.line, found.column, found.tag) == (None, 2, 7, "D_IDENT_UNDEF"), found
    assert "nothing_such" in found.text and "nothing_such" in str(failed.value)

    script = tmp_path / "nasty \udcff<script>.d"
    script.write_text("#pragma D option quiet\nBEGIN { trace($$1); }\nsyscall::nothing_such:entry { }\n")
    with pytest.raises(dtrace.Error) as failed:
        dtrace.run(script=script, args=["1"])
    (found,) = failed.value.diagnostics
    assert (found.script, found.line, found.column) == (str(script), 3, 1), found
    assert pickle.loads(pickle.dumps(failed.value)).diagnostics == failed.value.diagnostics


def test_what_cannot_be_traced_is_an_error(tmp_path):
    with pytest.raises(dtrace.Error, match="no_such_command"):
        dtrace.run("BEGIN { }", command="no_such_command")
    with pytest.raises(dtrace.Error):
        dtrace.run("BEGIN { }", pid=2**22 + 1)
    with pytest.raises(TypeError):
        dtrace.run()
    with pytest.raises(FileNotFoundError):
        dtrace.run(script=tmp_path / "none.d")
    with pytest.raises(ValueError):
        with dtrace.session("BEGIN { }") as session:
            session.next(float("inf"))


def test_a_time_that_is_none_is_refused():
    for seconds in (float("nan"), float("inf"), -float("inf"), -1):
        with pytest.raises(ValueError, match="no time to trace"):
            dtrace.run("BEGIN { }", seconds=seconds)
    with pytest.raises(TypeError, match="is a text"):
        dtrace.run("BEGIN { }", seconds="1")
    with dtrace.session("BEGIN { }") as session:
        for seconds in (float("nan"), float("inf")):
            with pytest.raises(ValueError, match="no time to wait"):
                session.next(seconds)


def test_what_is_no_number_of_a_process_is_refused():
    for pid in ("1", b"1", True, 1.5, ["1"], [1, True]):
        with pytest.raises(TypeError, match="no number of a process: give an int"):
            dtrace.session("BEGIN { }", pid=pid)
    for pid in (2**31, 0, -5, [2**63]):
        with pytest.raises(ValueError, match="no number of a process: they are from 1 to 2147483647"):
            dtrace.session("BEGIN { }", pid=pid)


def test_an_executable_can_be_named_that_reads_symbols(calls):
    with pytest.raises(dtrace.Error, match="/bin/true cannot read symbols"):
        dtrace.run("BEGIN { exit(0); }", reader="/bin/true")
    command = pathlib.Path(dtrace.__file__).with_name("bin") / "dtrace"
    found = dtrace.run(GETPPID + "{ @[ustack()] = count(); }", command=calls(3), reader=command)
    assert sum(row.value for row in found) == 3
    assert any(frame.name for row in found for frame in row.key[0])


def test_what_a_printa_has_printed_comes_at_the_end_as_others_do():
    with dtrace.session("BEGIN { @a = sum(7); @b = sum(8); printa(@b); exit(0); }") as session:
        found = [(e.name, e.occasion) for e in session if isinstance(e, dtrace.Aggregation)]
    assert found[0] == ("b", "printa") and sorted(found[1:]) == [("a", "end"), ("b", "end")]


def test_several_programs_are_one_session(tmp_path):
    script = tmp_path / "end.d"
    script.write_text("END { printf(\"%d\", x); }\n")
    result = dtrace.run(["BEGIN { x = 1; }", b"BEGIN { x++; exit(0); }"], script=[script])
    assert result.text.strip() == "2"


def test_faults_are_in_the_result():
    (fault,) = dtrace.run("BEGIN { trace(*(int *)16); exit(0); } BEGIN { exit(0); }").faults
    assert (fault.number, fault.value, fault.count, fault.probe.name) == (1, 16, 1, "BEGIN")
    assert "invalid address (0x10) in action #1" in str(fault)


def test_what_is_dropped_is_counted(calls):
    program = GETPPID + "{ @[timestamp] = count(); }"
    options = {"aggsize": "4k", "aggrate": "60s"}
    result = dtrace.run(program, command=calls(2000), options=options)
    dropped = sum(drop.count for drop in result.drops)
    assert dropped > 0 and len(result) + dropped == 2000
    assert {drop.kind for drop in result.drops} == {"aggregation"}
    with pytest.raises(dtrace.Error, match="drop"):
        dtrace.run(program, command=calls(2000), options=options, check=True)


def test_intervals_add_up_to_what_there_is(calls):
    program = GETPPID + "{ @n = count(); @q = quantize(7); }"
    result = dtrace.run(program, command=calls(3000), options={"every": "5ms"})
    found = [event for event in result.intervals if event.name == "n"]
    assert sum(row.increment for event in found for row in event) == 3000
    assert [row.total for event in found for row in event][-1] == 3000 == result["n"][()]
    assert all(a.end == b.begin for a, b in zip(found, found[1:]))
    assert all(event.wall > 1_700_000_000 * 10**9 for event in found)
    assert all(event.unsigned for event in found)
    page = result.heat_map()
    assert page.startswith(b"<!DOCTYPE html>") and result.flame_graph() is None
    assert result.heat_map("x.svg").startswith(b"<")
    with pytest.raises(ValueError, match="ends with .svg or .html"):
        result.heat_map("x.png")


def test_stacks_of_the_kernel_are_frames(calls):
    result = dtrace.run(GETPPID + "{ @[stack()] = count(); }", command=calls(50))
    ((stack,),) = [row.key for row in result]
    assert stack.process is None and len(stack) >= 1 and {stack: 1}[stack] == 1
    assert all(frame.name and frame.module for frame in stack), stack
    assert str(stack).split("\n")[0] == str(stack[0]) == stack[0].text
    folded = result.flame_graph("x.folded").decode().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in folded) == 50
    assert result.flame_graph().startswith(b"<!DOCTYPE html>")


def test_functions_of_processes_have_names(calls):
    result = dtrace.run(GETPPID + "{ @[ustack(), ufunc(ucaller)] = count(); }", command=calls(5))
    assert sum(row.value for row in result) == 5
    for stack, function in [row.key for row in result]:
        assert stack.process and any("getppid" in (frame.name or "") for frame in stack), stack
        assert isinstance(function, dtrace.Symbol)


def test_the_result_of_a_run_can_be_sent_elsewhere(calls):
    result = dtrace.run(GETPPID + "{ @[ustack()] = quantize(arg0); trace(1); }", command=calls(5))
    copy = pickle.loads(pickle.dumps(result))
    assert copy.events == result.events and copy.text == result.text
    assert copy["@"] == result["@"] and len(copy.records) == 5
    (stack,) = next(iter(copy)).key
    assert stack.process == next(iter(result)).key[0].process
    with pytest.raises(ValueError, match="copy"):
        copy.flame_graph()


def test_what_end_adds_to_an_aggregation_that_was_printed_is_in_the_result():
    program = "BEGIN { @a = sum(5); printa(@a); exit(0); } END { @a = sum(1000); }"
    assert dtrace.run(program)["a"][()] == 1005
    program = "BEGIN { @a = sum(5000); printa(@a); exit(0); } END { normalize(@a, 1000); }"
    assert dtrace.run(program)["a"][()] == 5


def test_a_stream_has_each_aggregation_once():
    with dtrace.session("BEGIN { @a = sum(7); @b = sum(8); printa(@b); exit(0); } END { trunc(@a); @c = sum(9); }") as s:
        last = [e for e in s if isinstance(e, dtrace.Aggregation) and e.occasion != "printa"]
    values = sorted(row.value for e in last for row in e)
    assert values == [8, 9]
