"""The row ``serve``: our server beside a fake llama-server, in turn. No time is asserted."""

import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tritgold.errors import EngineError
from tritgold_conformance.bench.clients import Answered, Load
from tritgold_conformance.bench.models import Model
from tritgold_conformance.bench.plan import Plan
from tritgold_conformance.bench.results import Result
from tritgold_conformance.bench.run import run
from tritgold_conformance.bench.serve_row import Prompts, served, served_rows
from tritgold_conformance.bench.shapes import ModelShape
from tritgold_conformance.bench.synthetic import synthetic_model

TINY = ModelShape("tiny", 1, 256, 256, 4, 2, 64, 64, context=128)
PLAN = Plan(
    rows=("serve",), threads=(1,), tokens=(8,), steps=2, runs=2, engine="reference", bandwidth_size=1 << 20,
    clients=(1, 3),
)  # fmt: skip
CASE = {"clients": 2, "prompt": 4, "steps": 3}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(two peers, the second of which refuses; a model)"""
    folder = tmp_path_factory.mktemp("serve")
    for name in ("llama-server", "refusing-server"):
        program = folder / name
        program.write_text(f"#!{sys.executable}\n{Path(__file__).with_name('fake_llama.py').read_text()}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        path = synthetic_model(TINY, folder)
        peers = f"llama.cpp={folder}/llama-server", f"ik_llama.cpp={folder}/refusing-server"
        yield peers, Model("tiny", path, path, TINY.config())


def of(results: list[Result]) -> list[tuple[str, Any, Any, Any, str]]:
    return [(r.engine, r.case["clients"], r.case.get("way"), r.case.get("until"), r.status) for r in results]


def test_servers_by_clients_and_ways(made: Any) -> None:
    peers, model = made
    found = run(replace(PLAN, peers=peers), model, [])
    refused = [r for r in found.results if r.status == "failed"]
    assert [(r.engine, r.case["clients"], r.timing, "status 503" in r.why) for r in refused] == [
        ("ik_llama.cpp", clients, None, True) for clients in (1, 3)
    ]
    found.results = [r for r in found.results if r.status != "failed"]
    ways = [("reference", "http"), ("reference", "direct"), ("llama.cpp", "http")]
    assert of(found.results) == [
        (engine, clients, way, until, "measured")
        for clients in (1, 3) for engine, way in ways for until in ("first token", "end")
    ]  # fmt: skip
    for first, whole in zip(found.results[::2], found.results[1::2], strict=True):
        assert first.timing is not None
        assert whole.timing is not None
        assert whole.timing.samples == first.timing.samples == 2 * 8
        assert 0 < first.timing.least <= whole.timing.median
        assert (first.per_second, (whole.per_second or 0) > 0) == (None, True)
        assert (whole.units, whole.unit) == (2, "answer")
        theirs = whole.engine == "llama.cpp"
        assert (first.ratio is not None, whole.ratio is not None) == (theirs, theirs)


def test_another_engine_has_no_server(made: Any) -> None:
    told = list[Any]()
    assert not [
        *served(replace(PLAN, engine="mine:Engine"), 1, made[1], None, {}, [CASE], print, lambda *a: told.append(a))
    ]
    assert [(case, error.kind, name) for case, error, name in told] == [(CASE, "not-offered", "mine:Engine")]


def test_tokens_a_second_and_ratios_are_medians_over_rounds() -> None:
    rounds = {"ours": iter([1.0, 2.0, 4.0]), "theirs": iter([3.0, 2.0, 4.0])}

    def way(name: str) -> Any:
        def work(prompts: list[list[int]], clients: int, tokens: int) -> Load:
            assert (len(prompts), clients, tokens) == (8, 2, 3)
            return Load([Answered(0.5, 1.0, tokens) for _ in prompts], next(rounds[name]))

        return work

    ways = {("ours", "http"): way("ours"), ("theirs", "http"): way("theirs")}
    results = served_rows(ways, CASE, 3, 1, "ours", Prompts(50), lambda *_: pytest.fail("nothing is missing"))
    assert [r.per_second for r in results] == [None, 24 / 2.0, None, 24 / 3.0]
    assert [r.ratio for r in results] == [None, None, 1.0, 1.0]


def test_a_way_that_fails_in_a_later_round_has_no_row() -> None:
    turns, told = iter([False, True]), list[Any]()

    def fails(prompts: list[list[int]], clients: int, tokens: int) -> Load:
        if next(turns):
            raise EngineError("ended", kind="peer", thing="other")
        return Load([Answered(0.5, 1.0, tokens)], 1.0)

    def works(prompts: list[list[int]], clients: int, tokens: int) -> Load:
        return Load([Answered(0.5, 1.0, tokens)], 1.0)

    ways = {("ours", "http"): works, ("other", "http"): fails}
    results = served_rows(ways, CASE, 3, 1, "ours", Prompts(50), lambda *what: told.append(what))
    assert {r.engine for r in results} == {"ours"}
    assert [(case, name) for case, _, name in told] == [({**CASE, "way": "http"}, "other")]


def test_no_two_prompts_begin_alike() -> None:
    prompts = Prompts(2000)
    found = prompts.next(10, 5) + prompts.next(30, 5)
    assert len({prompt[0] for prompt in found}) == 40
    assert {len(prompt) for prompt in found} == {5}
