"""Rows without a model file: every way gives the golden result, one that does not has no speed."""

import importlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tritgold_conformance.bench import run
from tritgold_conformance.bench.micro import registry
from tritgold_conformance.bench.micro.registry import MAKERS, Ways
from tritgold_conformance.bench.micro.way import Way, equal, near, same
from tritgold_conformance.bench.plan import BINDINGS, MICRO_ROWS, SIZED, Plan
from tritgold_conformance.bench.shapes import ModelShape
from tritgold_conformance.bench.timing import Timing

TINY = ModelShape("tiny", 1, 256, 512, 4, 2, 64, 64, context=128)
CONFIG = json.loads(json.dumps(TINY.config().as_dict()))  # as it comes over the pipe
PLAN = Plan(rows=("sample",), threads=(1,), runs=1, engine="reference", bandwidth_size=1 << 20)
CASES: dict[str, list[dict[str, Any]]] = {
    "unpack": [{"matrix": "64x256"}, {"matrix": "3x5"}],
    "fused": [{"group": "qkv", "tokens": 1}, {"group": "gate-up", "tokens": 3}],
    "kv-update": [{"kv": "bf16", "tokens": 1}, {"kv": "int8", "tokens": 3}, {"kv": "fp8_e4m3", "tokens": 2}],
    "kv-gather": [{"kv": "bf16", "tokens": 5}, {"kv": "int8", "tokens": 5}],
    "attention": [{"kv": "bf16", "context": 40}, {"kv": "int8", "context": 33}],
    "sparse-attention": [{"context": 40, "queries": 3}],
    "sparse-linear": [{"keep": "0.5", "tokens": 6}],
    "sample": [{}],
    "schedule": [{"sequences": 4}],
    "tokenise": [{"words": 64}],
}


@pytest.mark.parametrize(("row", "case"), [(row, case) for row, cases in CASES.items() for case in cases])
def test_numpy_s_ways_are_right(row: str, case: dict[str, Any]) -> None:
    found = Ways(row, case, CONFIG, None).round()
    assert found
    for name, answer in found.items():
        assert answer["wrong"] == "", name
        assert answer["seconds"] > 0
        assert answer["why"]


ON_DEVICE = ("unpack", "fused", "kv-update", "kv-gather", "attention", "sparse-attention", "sparse-linear")


@pytest.mark.parametrize("row", ON_DEVICE)
def test_the_engine_s_ways_are_right(row: str) -> None:
    pytest.importorskip("jax")
    adapter = importlib.import_module("tritgold_conformance.engines.xla_micro")
    for case in CASES[row][-1:]:
        found = Ways(row, case, CONFIG, adapter).round()
        own = {name: answer for name, answer in found.items() if answer["by"] == "xla"}
        assert own
        assert {answer["wrong"] for answer in own.values()} == {""}, own


def test_every_row_has_a_maker_and_a_case() -> None:
    assert {*MAKERS, "unpack", "binding"} == {*MICRO_ROWS}
    assert {*CASES} == {*MICRO_ROWS} - {"binding"}
    for row in SIZED:
        assert PLAN.cases(row)


def test_what_is_wrong_is_found_and_has_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[Way]:
        right = np.arange(4)
        return [
            Way("wrong", "", lambda: right + (right == 2), equal(right)),
            Way("raises", "", lambda: 1 // 0, equal(right)),
            Way("right", "", lambda: right, equal(right)),
        ]

    monkeypatch.setitem(registry.MAKERS, "sample", broken)
    found = Ways("sample", {}, CONFIG, None).round()
    assert [answer["wrong"] for answer in found.values()] == [
        "1 of 4 differ from the golden ones",
        "ZeroDivisionError: integer division or modulo by zero",
        "",
    ]
    assert [answer["seconds"] is None for answer in found.values()] == [True, True, False]


def test_how_results_are_held_against_golden_ones() -> None:
    assert equal(np.zeros(2))(np.zeros(3)) == "[3], expected [2]"
    assert "1 of 2" in equal(np.zeros(2))(np.array([0.0, np.nan]))
    assert near(np.ones(2), 1e-3, "sums")(np.array([1.0, 1.0005])) == ""
    assert "allowed 0.001: sums" in near(np.ones(2), 1e-3, "sums")(np.array([1.0, 1.1]))
    assert "off by nan" in near(np.ones(1), 1.0, "")(np.array([np.nan]))
    assert near(np.ones(2), 1.0, "")(np.ones(3))
    assert same(1)(2)


def test_rows_need_no_model_file_and_stand_in_the_report() -> None:
    found = run.run(replace(PLAN, rows=("sample", "unpack")), None, [(64, 256)], config=TINY.config())
    assert {(r.row, r.unit, r.status) for r in found.results} == {
        ("sample", "call", "measured"),
        ("unpack", "call", "measured"),
    }
    assert found.engines == []
    without = run.run(replace(PLAN, rows=("sample", "unpack")), None, [(64, 256)])
    assert {r.row for r in without.results} == {"unpack"}


def test_threads_are_bound_in_processes_of_their_own() -> None:
    found = run.run(replace(PLAN, rows=("binding",)), None, [(32, 64)])
    assert [r.case["way"] for r in found.results] == [*BINDINGS]
    assert all(isinstance(r.timing, Timing) and r.gmacs for r in found.results)
