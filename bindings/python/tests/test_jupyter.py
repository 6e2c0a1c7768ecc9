"""Sessions in the kernel of a notebook."""

import pytest

from conftest import LIMIT

pytest.importorskip("ipykernel")
manager = pytest.importorskip("jupyter_client.manager")

STREAM = """
import dtrace
for event in dtrace.session('tick-20ms { trace(1); }'):
    print(type(event).__name__, flush=True)
"""


@pytest.fixture
def kernel():
    kernel, client = manager.start_new_kernel(startup_timeout=LIMIT)
    yield kernel, client
    client.stop_channels()
    kernel.shutdown_kernel(now=True)


def outputs(client, cell):
    """What a cell sends until it has ended."""
    asked = client.execute(cell)
    while True:
        message = client.get_iopub_msg(timeout=LIMIT)
        if message["parent_header"].get("msg_id") != asked:
            continue
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return
        yield message["msg_type"], message["content"]


def test_a_cell_that_streams_is_interrupted_and_the_kernel_goes_on(kernel):
    kernel, client = kernel
    names, ends = set(), []
    for kind, content in outputs(client, STREAM):
        if kind == "stream":
            names.update(content["text"].split())
            if not ends and "Record" in names:
                ends.append("interrupted")
                kernel.interrupt_kernel()
        elif kind == "error":
            ends.append(content["ename"])
    assert "Record" in names and ends == ["interrupted", "KeyboardInterrupt"]
    program = "BEGIN { @[pid == $pid] = count(); exit(0); }"
    shown = [content["data"] for kind, content in outputs(client, f"dtrace.run({program!r})") if kind == "execute_result"]
    assert len(shown) == 1 and "<table" in shown[0]["text/html"] and "pid == $pid" in shown[0]["text/html"]
