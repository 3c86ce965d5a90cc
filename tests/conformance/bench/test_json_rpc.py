"""The line protocol between the benchmark and its processes."""

import os
import sys

import pytest

from tritgold.errors import EngineError, MissingDependencyError
from tritgold_conformance.bench.json_rpc import Worker

CHILD = """
import os
from tritgold.errors import EngineError, MissingDependencyError
from tritgold_conformance.bench.json_rpc import serve

def add(a, b):
    print("a library that prints")
    return a + b

def fail(kind):
    if kind == "ours":
        raise EngineError("does not do", kind="some-kind", thing="it", got=1, expected=2, hint="try this")
    if kind == "missing":
        raise MissingDependencyError("needs x", kind="missing-dependency", thing="x", hint="pip install x")
    raise ValueError("theirs")

def leave():
    os.write(2, b"the last words\\n")
    os._exit(7)

serve({"add": add, "fail": fail, "leave": leave})
"""


def worker() -> Worker:
    path = os.pathsep.join(part for part in sys.path if part)
    return Worker("child", [sys.executable, "-c", CHILD], {**os.environ, "PYTHONPATH": path})


def test_answers_come_back_and_prints_do_not_disturb_them() -> None:
    with worker() as child:
        assert child.ask("add", a=1, b=2) == 3
        assert child.ask("add", a="é", b="\n") == "é\n"


def test_errors_come_back_and_the_child_goes_on() -> None:
    with worker() as child:
        with pytest.raises(EngineError, match="it: does not do: found 1, expected 2") as caught:
            child.ask("fail", kind="ours")
        assert caught.value.kind == "some-kind"
        with pytest.raises(MissingDependencyError, match="pip install x"):
            child.ask("fail", kind="missing")
        with pytest.raises(EngineError, match="child: ValueError: theirs"):
            child.ask("fail", kind="theirs")
        assert child.ask("add", a=1, b=1) == 2


def test_a_child_that_ends_is_an_error_with_its_last_words() -> None:
    with worker() as child:
        with pytest.raises(EngineError, match=r"ended during 'leave' with 7.*the last words") as caught:
            child.ask("leave")
        assert caught.value.kind == "worker"
        with pytest.raises(EngineError, match="ended"):
            child.ask("add", a=1, b=1)
