"""The benchmark with small models and few rounds: what it reports, and what it refuses. No time is asserted."""

import importlib.util
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pytest
from rich.console import Console

from tritgold.errors import ContextError, EngineError, MissingDependencyError
from tritgold_conformance.bench import memory, processes, run, thread_run
from tritgold_conformance.bench.models import Model
from tritgold_conformance.bench.peer_names import NAMES
from tritgold_conformance.bench.plan import OF_A_PEER, ROWS, Plan
from tritgold_conformance.bench.processes import PEERS_PYTHON, require_peers
from tritgold_conformance.bench.results import BenchResults, Report, json_schema, to_json
from tritgold_conformance.bench.shapes import ModelShape
from tritgold_conformance.bench.synthetic import synthetic_model
from tritgold_conformance.bench.table import render
from tritgold_conformance.bench.throughput import bytes_of_a_step
from tritgold_conformance.bench.worker_transformers import Transformers

TINY = ModelShape("tiny", 1, 256, 256, 4, 2, 64, 64, context=128)
ALL = ("decode", "greedy", "prefill", "first-token", "block-diffusion", "block-pass", "batch")
PLAN = Plan(
    rows=ALL, threads=(1,), contexts=(8,), tokens=(16,), steps=2, runs=2, engine="reference", bandwidth_size=1 << 20
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = synthetic_model(TINY, tmp_path_factory.mktemp("bench"))
    return Model("tiny", path, path, TINY.config())


def report_of(found: BenchResults) -> Report:
    return Report(
        date="2026-11-28T00:00:00+00:00", shape="tiny", model="tiny.gguf", config=TINY.config().as_dict(), command="",
        machine={"processor": "some", "cores": 1}, engines=found.engines, bandwidth=found.bandwidth,
        results=found.results, profiles=found.profiles,
    )  # fmt: skip


def shown(report: Report) -> str:
    console = Console(width=110, highlight=False, emoji=False, no_color=True)
    with console.capture() as capture:
        render(report, console)
    text = capture.get()
    assert max(map(len, text.splitlines())) <= 110
    return text


def test_rows_of_an_engine_that_passes(model: Model) -> None:
    found = run.run(PLAN, model, [(256, 256)])
    by_row = {result.row: result for result in found.results}
    assert list(by_row) == [r for r in ROWS if r in ALL]
    offered = {"decode": "token", "prefill": "prompt", "first-token": "prompt"}
    for row, result in by_row.items():
        assert result.status == ("measured" if row in offered else "not offered"), (row, result.why)
        assert (result.timing is None) is (row not in offered)
    for row, unit in offered.items():
        timing = by_row[row].timing
        assert timing is not None
        assert by_row[row].unit == unit
        assert timing.samples == (4 if row == "decode" else 2)
        assert by_row[row].per_second == pytest.approx((1 if row == "decode" else 16) / timing.median)
    macs = {"decode": 393_216 + 16_384, "prefill": 16 * 393_216 + 16_384}
    for row, count in macs.items():
        timing = by_row[row].timing
        assert timing is not None
        assert by_row[row].gmacs == pytest.approx(count / timing.median / 1e9)
    (engine,) = found.engines
    assert engine.passed is True
    assert engine.judged.startswith("conforms on tiny")
    assert engine.load is not None
    assert (found.bandwidth[0].threads, len(found.bandwidth)) == (1, 1)
    assert found.bandwidth[0].samples == 1  # no row of this engine says what it reads
    report = report_of(found)
    assert report.exit_code == 0
    jsonschema.validate(json.loads(to_json(report)), json_schema())
    assert json.loads(to_json(report))["schema"] == "tritgold.bench/2"
    text = shown(report)
    assert "the engine has no greedy" in text
    assert "decode" in text


@pytest.mark.parametrize("engine", ["faulty_engines:Faulty", "faulty_engines:Crashing"])
def test_a_broken_engine_has_no_speed(model: Model, engine: str) -> None:
    found = run.run(replace(PLAN, rows=("decode", "prefill"), engine=engine), model, [])
    assert [result.status for result in found.results] == ["not passed"] * 2
    for result in found.results:
        assert (result.timing, result.per_second, result.gmacs, result.roofline_fraction) == (None,) * 4
        assert result.why
    assert [e.passed for e in found.engines] == [False]
    report = report_of(found)
    assert report.exit_code == 1
    text = shown(report)
    assert "not passed" in text
    assert "GMAC/s" not in text


@pytest.mark.parametrize("engine", ["no_such_module:Engine", "unknown"])
def test_no_engine_is_no_verdict(model: Model, engine: str) -> None:
    with pytest.raises(EngineError, match="engine"):
        run.run(replace(PLAN, rows=("decode",), engine=engine), model, [])


def test_rows_of_a_matrix() -> None:
    plan = replace(PLAN, rows=("gemv", "gemm"), tokens=(3,))
    found = run.run(plan, None, [(64, 128)])
    ways = ("naive", "look-up table", "cached f32", "f16, widened", "w + 1, rows", "w + 1, columns", "TL1", "TL2")
    assert [(r.row, r.case["tokens"], r.case["way"]) for r in found.results] == [
        (row, tokens, way) for row, tokens in (("gemv", 1), ("gemm", 3)) for way in ways
    ]
    for result in found.results:
        assert result.timing is not None
        assert result.engine == "numpy"
        tokens = int(result.case["tokens"])
        assert result.gmacs == pytest.approx(64 * 128 * tokens / result.timing.median / 1e9)
        assert (result.roofline_fraction is None) is (tokens > 1)
    assert report_of(found).exit_code == 0
    assert "look-up table" in shown(report_of(found))


def test_nothing_measured_is_no_pass(model: Model) -> None:
    found = run.run(replace(PLAN, rows=("greedy",)), model, [])
    assert report_of(found).exit_code == 5


def test_two_threads_are_held_against_one(model: Model) -> None:
    if len(memory.cores()) < 2:
        pytest.skip("one processor")
    found = run.run(replace(PLAN, rows=("threads",), threads=(1, 2)), model, [])
    assert [(r.row, r.threads, r.scaling is None) for r in found.results] == [
        (row, threads, threads == 1) for threads in (1, 2) for row in ("decode", "prefill")
    ]
    one, two = (r.timing for r in found.results if r.row == "decode")
    assert one is not None
    assert two is not None
    assert found.results[2].scaling == pytest.approx(one.median / two.median)


def test_what_is_wrong_is_said_before_anything_runs(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_run, "engine_process", lambda *_, **__: pytest.fail("a process was started"))
    with pytest.raises(ContextError, match=r"expected at most 128\. give smaller --context"):
        run.run(replace(PLAN, contexts=(128,)), model, [])
    with pytest.raises(EngineError, match="more threads than processors"):
        Plan(rows=("decode",), threads=(10_000,))
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    with pytest.raises(EngineError, match="does not fit into memory"):
        run.run(PLAN, model, [])


def test_a_peer_that_is_not_there_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.delenv(PEERS_PYTHON, raising=False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'tritgold\[peers\]'"):
        require_peers(("llama.cpp",))
    with pytest.raises(MissingDependencyError, match=PEERS_PYTHON):
        require_peers(("transformers",))
    require_peers(())


def test_bytes_of_a_step() -> None:
    """One layer: four matrices of 256 x 256 (k and v are half), three of the FFN."""
    config, case = TINY.config(), {"context": 100, "steps": 4}
    assert memory.ternary_weights(config) == (1 + 0.5 + 0.5 + 1 + 3) * 65_536 == 393_216
    weights, head, kv = 393_216, 64 * 256, 2 * 128

    def moved(engine: str, sizes: dict[str, int] | None, row: str = "decode") -> int | None:
        return bytes_of_a_step(engine, row, config, case, 3, sizes)

    assert moved("xla", {}) is None
    sizes = {"packed": 7, "head": 100, "screen": 50, "kv": 3}
    assert moved("xla", sizes) == 7 + 100 + 3 * 108
    assert moved("xla", sizes, "greedy") == 7 + 50 + 3 * 108
    assert moved("llama.cpp", None) == weights * 66 // 256 + 2 * head + 2 * kv * 102
    assert moved("ik_llama.cpp+q8_0", None) == weights // 4 + head * 34 // 32 + 2 * kv * 102
    assert moved("transformers", None) == 2 * (weights + head + kv * 108)


def test_a_python_without_transformers_says_so(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter of the tests may have it: one that sees no packages has not."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setenv(PEERS_PYTHON, str(bare))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="without it"):
        run.run(replace(PLAN, rows=("decode",), peers=("transformers",)), model, [])


def peers_here() -> list[str]:
    found = ["llama.cpp"] if importlib.util.find_spec("xllamacpp") else []
    return found + (["transformers"] if os.environ.get(PEERS_PYTHON) else [])


@pytest.mark.parametrize("peer", NAMES)
def test_a_peer_is_timed_in_the_same_rounds(
    model: Model, peer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if peer not in peers_here():
        pytest.skip(f"{peer} is not there")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = ("decode", "prefill")
    found = run.run(replace(PLAN, rows=rows, peers=(peer,)), model, [])
    assert [(r.row, r.engine) for r in found.results] == [(row, e) for row in rows for e in ("reference", peer)]
    for ours, theirs in zip(found.results[::2], found.results[1::2], strict=True):
        assert ours.timing is not None, ours.why
        assert theirs.timing is not None
        assert theirs.ratio is not None
        assert theirs.bytes_moved is None or theirs.bytes_moved > 0
    sides: dict[str, Any] = {engine.name: engine for engine in found.engines}
    assert sides[peer].passed is (True if peer == "llama.cpp" else None), sides[peer].judged
    assert sides[peer].versions
    assert sides[peer].options
    assert set(OF_A_PEER.values()) <= set(ROWS)


class Peer:
    """A peer that decodes and refuses prompts. kind: of the error; with ``worker`` its process has ended."""

    def __init__(self, kind: str) -> None:
        self.kind, self.ended = kind, False

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, do: str, **what: Any) -> Any:
        assert not self.ended
        if do == self.kind == "judge":
            return {"passed": False, "text": "it computes nothing"}
        if do == self.kind == "open":
            raise EngineError("its process ended", kind="worker", thing="llama.cpp")
        if do == "measure" and what["row"] == "prefill":
            self.ended = self.kind == "worker"
            raise EngineError("did not do what was asked", kind=self.kind, thing="llama.cpp")
        return {
            "judge": {"passed": True, "text": ""},
            "open": {"load": 1.0, "options": {}},
            "measure": {"seconds": [1e3], "first": None},
            "facts": {"versions": {}, "flags": {}, "peak_memory": 1},
        }[do]


def test_a_peer_that_does_not_pass_is_not_timed(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "peer_process", lambda *_: Peer("judge"))
    monkeypatch.setattr(thread_run, "peer_process", lambda *_: pytest.fail("it was opened"))
    monkeypatch.setattr(run, "for_llama_cpp", lambda *_: model.path)
    monkeypatch.setattr(run, "require_peers", lambda _: None)
    found = run.run(replace(PLAN, rows=("decode",), peers=("llama.cpp",)), model, [])
    theirs, ours = found.results
    assert (theirs.status, theirs.timing, ours.status) == ("not passed", None, "measured")
    assert "it computes nothing" in theirs.why
    assert report_of(found).exit_code == 1


@pytest.mark.parametrize("kind", ["peer", "worker"])
def test_a_peer_that_fails_takes_no_speed_from_the_engine(
    model: Model, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(thread_run, "peer_process", lambda *_: Peer(kind))
    monkeypatch.setattr(processes, "peer_process", lambda *_: Peer(kind))
    monkeypatch.setattr(run, "for_llama_cpp", lambda *_: model.path)
    monkeypatch.setattr(run, "require_peers", lambda _: None)
    rows = ("decode", "prefill", "first-token")
    found = run.run(replace(PLAN, rows=rows, peers=("llama.cpp",)), model, [])
    assert [(r.row, r.engine, r.status) for r in found.results if r.row != "first-token"] == [
        ("decode", "reference", "measured"),
        ("decode", "llama.cpp", "measured"),
        ("prefill", "llama.cpp", "failed"),
        ("prefill", "reference", "measured"),
    ]
    assert found.results[1].ratio is not None
    assert "did not do what was asked" in found.results[2].why


def test_a_peer_that_cannot_be_opened_takes_no_speed_from_the_engine(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_run, "peer_process", lambda *_: Peer("open"))
    monkeypatch.setattr(processes, "peer_process", lambda *_: Peer("open"))
    monkeypatch.setattr(run, "for_llama_cpp", lambda *_: model.path)
    monkeypatch.setattr(run, "require_peers", lambda _: None)
    found = run.run(replace(PLAN, rows=("decode",), peers=("llama.cpp",)), model, [])
    assert [(r.engine, r.status) for r in found.results] == [("llama.cpp", "failed"), ("reference", "measured")]


def test_transformers_decodes_behind_its_context_and_not_behind_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    peer, read = Transformers.__new__(Transformers), []
    peer._torch, peer._past, peer._context = SimpleNamespace(tensor=np.array), None, 0

    def forward(ids: Any, past: Any) -> Any:
        peer._past = ids.size + (past or 0)
        read.append(peer._past)
        return np.zeros(3)

    monkeypatch.setattr(peer, "_run", forward)
    monkeypatch.setattr(peer, "_ids", lambda count: np.zeros((1, count), int))
    for row, case in [("decode", {"context": 8, "steps": 1}), ("prefill", {"tokens": 40})] * 2:
        peer.measure(row, case)
    assert read == [8, 9, 40] * 2


def test_the_xla_engine_end_to_end(model: Model) -> None:
    pytest.importorskip("jax")
    found = run.run(replace(PLAN, engine="xla", rows=("decode",), contexts=(4,)), model, [])
    (result,) = found.results
    assert result.status == "measured", result.why
    (engine,) = found.engines
    assert engine.passed
    assert {"jax", "jaxlib"} <= engine.versions.keys()
    assert engine.packed_bytes is not None
    assert engine.packed_bytes >= 393_216 // 4
    assert result.bytes_moved is not None
    assert result.roofline_fraction is not None
    assert found.bandwidth[0].ways.keys() == {"numpy maximum", "compiled column sums"}
    assert found.bandwidth[0].samples == 1 + 2  # and in each round
    assert shown(report_of(found))
