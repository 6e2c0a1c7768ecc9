"""The package itself: its command, its stubs, its examples."""

import ast
import inspect
import os
import pathlib
import subprocess
import sys

import dtrace
import pytest

EXAMPLES = pathlib.Path(os.environ["DTRACE_EXAMPLES"])


def python(*words, **options):
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=120, **options)


def test_importing_it_imports_little():
    before = "import sys; before = set(sys.modules); import dtrace; print(*(set(sys.modules) - before))"
    done = python("-S", "-c", before, env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(dtrace.__file__))})
    own = {name for name in done.stdout.split() if not name.startswith("dtrace")}
    # What a named tuple needs.
    allowed = {"collections", "_collections", "itertools", "keyword", "operator", "_operator", "reprlib",
               "_collections_abc", "time", "os", "os.path", "stat", "_stat", "abc", "posixpath", "genericpath"}  # fmt: skip
    assert done.returncode == 0 and own <= allowed, (own - allowed, done.stderr)


def test_the_command_of_the_package_runs():
    done = python("-m", "dtrace", "-qn", 'BEGIN { printf("%s", $$1); exit(3); }', "a b")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (3, "a b", ""), done


def stub():
    path = pathlib.Path(dtrace.__file__).with_name("__init__.pyi")
    return ast.parse(path.read_text())


def parameters(function):
    a = function.args
    return [arg.arg for arg in a.posonlyargs + a.args + a.kwonlyargs if arg.arg != "self"]


def test_the_stubs_have_what_the_package_has():
    public = {node.name: node for node in stub().body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert set(public) == set(dtrace.__all__)
    for name, node in public.items():
        there = getattr(dtrace, name)
        if isinstance(node, ast.FunctionDef):
            assert parameters(node) == list(inspect.signature(there).parameters), name
            continue
        members = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
        fields = [n.target.id for n in node.body if isinstance(n, ast.AnnAssign)]
        known = getattr(there, "_fields", None) or getattr(there, "__slots__", None) or ()
        if known:
            assert [field for field in fields if field in known] == list(known), name
        for member, function in members.items():
            here = inspect.getattr_static(there, member)
            if isinstance(here, property):
                continue
            if member.startswith("__") and member != "__init__":
                assert callable(getattr(there, member)), (name, member)
                continue
            assert parameters(function) == [p for p in inspect.signature(here).parameters if p != "self"], (name, member)
        own = {m for m in vars(there) if not m.startswith("_")} - set(known)
        assert own <= set(members) | set(fields), (name, own - set(members))


def test_there_are_ten_examples():
    assert len(list(EXAMPLES.glob("*.py"))) == 10


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example_runs(name, tmp_path):
    path = EXAMPLES / f"{name}.py"
    source = path.read_text()
    done = python(path, *("0.3" for _ in range("sys.argv" in source)), cwd=tmp_path)
    needs = next((n for n in ("pandas",) if f"import {n}" in source or f"to_{n}" in source), None)
    if needs and f"No module named '{needs}'" in done.stderr:
        pytest.skip(f"no {needs}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and "Traceback" not in done.stderr, done
