"""dtrace.session(): events while they come, threads, signals, and what ends a session."""

import os
import signal
import subprocess
import sys
import threading
import time

import dtrace
import pytest
from conftest import LIMIT, descriptors

OWN = "syscall::getpriority:entry /pid == $pid/ "


def records(session, count):
    """So many records, which must come."""
    found = []
    while len(found) < count:
        event = session.next(LIMIT)
        assert event is not None, f"{len(found)} of {count}"
        if isinstance(event, dtrace.Record):
            found.append(event)
    return found


def test_events_come_in_their_order(calls):
    program = "BEGIN { trace(1); } syscall::getppid:entry /pid == $target/ { trace(timestamp); } END { trace(2); }"
    events = list(dtrace.session(program, command=calls(300)))
    assert isinstance(events[0], dtrace.Start) and events[-1] == dtrace.End(0)
    found = [event for event in events if isinstance(event, dtrace.Record)]
    assert found[0].values == (1,) and found[-1].values == (2,) and len(found) == 302
    times = [record.values[0] for record in found[1:-1]]
    assert times == sorted(times) and len(set(times)) == 300
    assert [record.time for record in found] == sorted(record.time for record in found)
    assert {record.probe.function for record in found[1:-1]} == {"getppid"}
    assert str(found[1].probe) == "syscall:vmlinux:getppid:entry", found[1].probe


def test_records_come_while_the_session_runs():
    with dtrace.session(OWN + "{ trace(tid); }", options={"switchrate": "1ms"}) as session:
        for _ in range(3):
            os.getpriority(os.PRIO_PROCESS, 0)
            (record,) = records(session, 1)
            assert record.values == (threading.get_native_id(),)
            assert (record.pid, record.tid) == (os.getpid(), threading.get_native_id())
        assert not session.is_over


def test_nothing_comes_within_the_time():
    with dtrace.session("BEGIN { }") as session:
        while session.next(0) is not None:
            pass
        assert session.next(0.01) is None and session.next(-1) is None and not session.is_over


def test_aggregations_can_be_asked_for_while_the_session_runs():
    with dtrace.session(OWN + "{ @[probefunc] = count(); }", text=True) as session:
        for count in (10, 25):
            for _ in range(count):
                os.getpriority(os.PRIO_PROCESS, 0)
            expected = count if count == 10 else 35
            assert session.aggregations()["_"].to_dict() == {"getpriority": expected}
        assert session.text() == ""
        result = session.finish()
        assert result["@"]["getpriority"] == 35 and result.text.split() == ["getpriority", "35"]


def test_programs_can_be_added_while_the_session_runs():
    with dtrace.session("BEGIN { x = 5; }") as session:
        with pytest.raises(dtrace.Error) as failed:
            session.enable("syscall::nothing_such:entry { }")
        assert failed.value.diagnostics[0].line == 1
        assert session.enable(OWN + "{ @[x, $1] = count(); }", args=[8]) == [1]
        for _ in range(7):
            os.getpriority(os.PRIO_PROCESS, 0)
        session.stop()
        *_, last, _end = session
        assert last.to_dict() == {(5, 8): 7}
        with pytest.raises(dtrace.Error, match="over"):
            session.enable("BEGIN { }")


def test_another_thread_can_stop_a_session():
    with dtrace.session("tick-1ms { @ = count(); } END { trace(1); }") as session:
        found = []
        reader = threading.Thread(target=lambda: found.extend(session))
        reader.start()
        session.stop()
        reader.join(LIMIT)
        assert not reader.is_alive() and found[-1] == dtrace.End(0) and session.is_over
        assert [event.values for event in found if isinstance(event, dtrace.Record)] == [(1,)]


def test_the_end_of_its_block_closes_a_session():
    before = descriptors()
    with dtrace.session(OWN + "{ trace(1); }") as session:
        os.getpriority(os.PRIO_PROCESS, 0)
        assert descriptors() > before
    assert descriptors() == before and list(session) == [] and session.next(1) is None
    session.close()
    session.stop()


def test_a_session_that_is_over_has_nothing_in_the_kernel():
    before = descriptors()
    session = dtrace.session("BEGIN { exit(0); }")
    assert list(session)[-1] == dtrace.End(0) and descriptors() == before


def test_a_session_that_nobody_has_is_closed():
    before = descriptors()
    session = dtrace.session("BEGIN { }")
    assert descriptors() > before
    del session
    assert descriptors() == before


def test_other_threads_run_while_a_session_is_given_up():
    ran, interval = [], sys.getswitchinterval()
    # From now on a thread runs only when another one lets go of the interpreter by itself.
    sys.setswitchinterval(1000)
    try:
        for _ in range(20):
            session, gate = dtrace.session("BEGIN { }"), threading.Lock()
            gate.acquire()
            thread = threading.Thread(target=lambda: (gate.acquire(), ran.append(1)))
            thread.start()
            gate.release()
            del session
            has_run = bool(ran)
            thread.join(LIMIT)
            if has_run:
                break
            ran.clear()
    finally:
        sys.setswitchinterval(interval)
    assert has_run


def test_several_sessions_run_at_once():
    with dtrace.session(OWN + "{ @ = count(); }") as one:
        os.getpriority(os.PRIO_PROCESS, 0)
        with dtrace.session(OWN + "{ @ = sum(10); }") as two:
            for _ in range(9):
                os.getpriority(os.PRIO_PROCESS, 0)
            assert one.finish()["@"][()] == 10
            os.getpriority(os.PRIO_PROCESS, 0)
            assert two.finish()["@"][()] == 100


def test_each_thread_can_have_a_session(calls):
    found = {}

    def trace(n):
        program = "syscall::getppid:entry /pid == $target/ { @[pid == $target] = count(); }"
        found[n] = dtrace.run(program, command=calls(100 * n))["@"].to_dict()

    threads = [threading.Thread(target=trace, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert found == {n: {1: 100 * n} for n in (1, 2, 3)}


def test_other_threads_run_while_a_session_waits():
    # The thread needs the interpreter to get to its call, for which the session waits.
    with dtrace.session(OWN + "{ trace(arg0); }", options={"switchrate": "1ms"}) as session:
        counted = []

        def count():
            counted.extend(range(200_000))
            os.getpriority(os.PRIO_PROCESS, 0)

        threading.Thread(target=count).start()
        records(session, 1)
        assert len(counted) == 200_000


def test_two_threads_can_read_one_session():
    with dtrace.session(OWN + "{ trace(timestamp); }", options={"switchrate": "1ms"}) as session:
        found = []
        threads = [threading.Thread(target=lambda: found.extend(session)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(400):
            os.getpriority(os.PRIO_PROCESS, 0)
        session.stop()
        for thread in threads:
            thread.join(LIMIT)
        values = [event.values for event in found if isinstance(event, dtrace.Record)]
        assert len(values) == 400 == len(set(values))


INTERRUPTED = """
import os, signal, sys, dtrace
session = dtrace.session("syscall::getpriority:entry /pid == $pid/ { @ = count(); }")
os.getpriority(os.PRIO_PROCESS, 0)
try:
    print("ready", flush=True)
    if sys.argv[1] == "next":
        for event in session:
            pass
    elif sys.argv[1] == "run":
        dtrace.run("BEGIN { @ = sum(4); } END { @ = sum(1); trace(5); }", seconds=3600)
    elif sys.argv[1] == "endless":
        dtrace.run("BEGIN { @ = sum(4); } END { @ = sum(1); trace(5); }")
except KeyboardInterrupt as e:
    if sys.argv[1] != "next":
        print(e.result["@"][()], [record.values for record in e.result.records])
    # A notebook goes on after it.
    result = session.finish()
    print(result["@"][()], flush=True)
"""


def waits(process):
    """Waits until a process waits in ppoll(2), by the numbers that the call has."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        with open(f"/proc/{process.pid}/syscall") as file:
            if file.read().split()[0] in ("271", "73"):
                return
        time.sleep(0.001)
    raise AssertionError("it does not wait")


@pytest.mark.parametrize("what", ["next", "run", "endless"])
def test_an_interrupt_ends_a_wait(what):
    words = [sys.executable, "-c", INTERRUPTED, what]
    # A shell in the background has it ignored.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    words[2] = heed + words[2]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        waits(child)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=LIMIT)
    # What a run has found until then is not lost.
    found = "" if what == "next" else "5 [(5,)]\n"
    assert (child.returncode, out) == (0, found + "1\n")


# Every instruction of a library is a probe. An enabling that is over before anybody can interrupt it
# begins again.
ENABLED = """
import signal, dtrace
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("ready", flush=True)
    while True:
        with dtrace.session("pid$target:libc.so.6:: { @ = count(); }", command="true"):
            pass
except KeyboardInterrupt:
    pass
with dtrace.session("BEGIN { @ = sum(3); }") as session:
    print(session.finish()["@"][()], flush=True)
"""


def test_an_interrupt_ends_a_long_enabling():
    words = [sys.executable, "-c", ENABLED]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n", child.communicate()
        # It has descriptors of the kernel's programs: the enabling is at work.
        end = time.monotonic() + LIMIT
        while programs(child) == 0:
            assert child.poll() is None and time.monotonic() < end, child.communicate()
            time.sleep(0.001)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=LIMIT)
    assert (child.returncode, out) == (0, "3\n"), err


def programs(process):
    """How many programs of BPF a process has."""
    count = 0
    folder = f"/proc/{process.pid}/fd"
    for name in os.listdir(folder):
        try:
            count += os.readlink(f"{folder}/{name}") == "anon_inode:bpf-prog"
        except OSError:
            pass
    return count


def test_handlers_of_signals_run_while_a_session_waits():
    with dtrace.session(OWN + "{ trace(1); }", options={"switchrate": "1ms"}) as session:
        def handler(*_):
            os.getpriority(os.PRIO_PROCESS, 0)

        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            records(session, 1)
        finally:
            signal.signal(signal.SIGALRM, before)


def test_a_panic_is_an_error_and_ends_its_session_alone(capfd):
    before = descriptors()
    with dtrace.session("BEGIN { }") as other:
        with dtrace.session("BEGIN { }") as session:
            with pytest.raises(dtrace.Error, match="internal error: a panic of a test"):
                session._native._panic()
            with pytest.raises(dtrace.Error, match="internal error"):
                session.next(0)
            with pytest.raises(dtrace.Error, match="internal error"):
                session.aggregations()
        assert other.enable(OWN + "{ }") == [1]
    assert descriptors() == before


def test_a_panic_where_an_event_is_taken_is_an_error_and_ends_its_session():
    before = descriptors()
    with dtrace.session("BEGIN { trace(1); }") as session:
        session._native._panic(True)
        with pytest.raises(dtrace.Error, match="internal error: a panic of a test"):
            session.next(LIMIT)
        assert descriptors() == before
        with pytest.raises(dtrace.Error, match="internal error: a panic of a test"):
            session.aggregations()


def test_a_handler_can_close_a_session_at_work():
    before_all = descriptors()

    def handler(*_):
        s.close()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with dtrace.session("tick-10ms { @ = count(); }") as s:
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            for _ in s:
                pass
            assert s.is_over
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert descriptors() == before_all


def test_a_handler_that_uses_a_session_at_work_is_an_error_and_no_deadlock():
    found = []

    def handler(*_):
        try:
            found.append(s.is_over)
        except dtrace.Error as e:
            found.append(str(e))

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with dtrace.session("tick-10ms { @ = count(); n++; } tick-10ms /n == 100/ { exit(0); }") as s:
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            assert len([e for e in s if isinstance(e, dtrace.Aggregation)]) == 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found
