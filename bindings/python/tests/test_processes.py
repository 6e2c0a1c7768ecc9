"""Processes that are forked while a session runs."""

import multiprocessing
import os
import subprocess
import sys

import dtrace
import pytest
from conftest import LIMIT, descriptors


def child(done):
    """The result of a function in a child of fork, as a text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(done())
        except BaseException as e:
            text = f"{type(e).__name__}: {e}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        text = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text


def calls(count):
    for _ in range(count):
        os.getppid()
    return os.getpid()


def test_a_session_is_that_of_its_process():
    with dtrace.session("syscall::getpriority:entry /pid == $pid/ { @ = count(); }") as session:
        message = f"Error: the session is that of process {os.getpid()}, which has forked this one"
        uses = [
            lambda: session.next(0),
            lambda: next(session),
            lambda: session.enable("BEGIN { }"),
            lambda: session.aggregations(),
            lambda: session.stop(),
            lambda: session.finish(),
        ]
        assert [child(use) for use in uses] == [message] * len(uses)
        # What a child does at its end harms nobody.
        assert child(lambda: session.close()) == "None"
        os.getpriority(os.PRIO_PROCESS, 0)
        assert session.finish()["@"][()] == 1


def test_a_notebook_shows_a_result_in_a_child_as_text():
    found = dtrace.run("BEGIN { @[stack()] = count(); exit(0); }")
    assert "<iframe" in found._repr_html_()
    page = child(found._repr_html_)
    assert page.startswith("<div") and "<table" in page and "<iframe" not in page, page


def test_a_child_has_nothing_of_a_session():
    before = descriptors()
    with dtrace.session("syscall::getppid:entry { @ = count(); }"):
        assert descriptors() > before
        assert child(descriptors) == "0"


def test_probes_end_with_their_session_though_a_child_lives():
    read, write = os.pipe()
    ready, is_ready = os.pipe()
    session = dtrace.session("syscall::getppid:entry { @ = count(); }")
    pid = os.fork()
    if pid == 0:
        # What it had of the session is closed before it gets here.
        os.write(is_ready, b"x")
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    try:
        session.close()
        assert os.read(ready, 1) == b"x"
        assert descriptors(pid) == 0 == descriptors()
    finally:
        os.close(write)
        os.waitpid(pid, 0)
        for end in (read, ready, is_ready):
            os.close(end)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes_is_traced(method):
    program = "syscall::getppid:entry /ppid == $1/ { @[pid] = count(); }"
    with dtrace.session(program, args=[os.getpid()]) as session:
        with multiprocessing.get_context(method).Pool(2) as pool:
            workers = pool.map(calls, [250] * 4, chunksize=1)
        result = session.finish()
    found = result["@"].to_dict()
    expected = {pid: 250 * workers.count(pid) for pid in workers}
    assert {pid: found.get(pid) for pid in expected} == expected and sum(found.values()) == 1000


def traced(count):
    words = [sys.executable, "-c", f"import os\nfor _ in range({count}): os.getppid()"]
    return dtrace.run("syscall::getppid:entry /pid == $target/ { @ = count(); }", command=words)


def test_processes_of_a_pool_can_trace():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(traced, [10, 20])
    assert [result["@"][()] for result in found] == [10, 20]


def test_a_copy_of_a_process_that_has_traced_begins_no_session():
    list(dtrace.session("BEGIN { exit(0); }"))
    told = child(lambda: dtrace.session("BEGIN { }"))
    assert told.startswith(f"Error: process {os.getpid()}, which has forked this one, has traced before"), told


FORKS = """
import os, dtrace
if os.fork() == 0:
    print(dtrace.run("BEGIN { exit(5); }").status, flush=True)
    os._exit(0)
os.wait()
"""


def test_a_copy_of_a_process_that_has_not_traced_can_trace():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=LIMIT)
    assert (done.stdout, done.stderr) == ("5\n", "")
