"""Memory is asked for before anything is allocated; how much there is, tests/reference/test_machine.py knows."""

import pytest
from engine_cases import LLAMA, make_weights

from tritgold.errors import EngineError
from tritgold_xla import XlaEngine
from tritgold_xla.runtime import checks


@pytest.mark.parametrize("free", [0, 999])
def test_too_little_memory_is_said(monkeypatch, free):
    monkeypatch.setattr(checks, "available_memory", lambda: free)
    with pytest.raises(EngineError, match=r"found 0\.00 GB free, expected 0\.00 GB.*smaller capacity.*\[memory\]"):
        checks.check_memory(1000)


@pytest.mark.parametrize("free", [1000, None])
def test_enough_memory_or_a_system_that_does_not_tell(monkeypatch, free):
    monkeypatch.setattr(checks, "available_memory", lambda: free)
    checks.check_memory(1000)


def test_the_engine_asks_before_it_packs_anything(monkeypatch):
    monkeypatch.setattr(checks, "available_memory", lambda: 1000)
    with pytest.raises(EngineError, match=r"\[memory\]"):
        XlaEngine(LLAMA, make_weights(LLAMA), 8, progress=lambda *_: pytest.fail("packed"))
