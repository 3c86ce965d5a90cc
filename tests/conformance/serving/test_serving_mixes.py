"""``measure.serving_mixes``: what it compares, and that a wrong scheduler or engine is seen. 1,000 are in docs/data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting_engine import Counting
from measure import serving_mixes
from measure.serving_mixes import Answered, Golden, alone, differs, mix, requests, row

from tritgold.checkpoint import open_checkpoint
from tritgold.golden.seeded import write_seeded_model
from tritgold_conformance.serving.xla_scheduler import XlaScheduler

RECORDED = Path(__file__).parents[3] / "docs/data/serve-mixes.json"


def test_mixes_of_an_engine_whose_answers_depend_on_nothing_else() -> None:
    found = row(Counting(4), 30, 60)
    counts = found["counts"]
    assert found["wrong"] == []
    assert counts["requests"] == 30 * serving_mixes.IN_A_MIX
    kinds = ("cancelled", "greedy", "seeded", "ended: stop", "ended: length", "tokens of prompts reused")
    assert all(counts[kind] > 10 for kind in kinds), counts


def test_mixes_of_the_golden_model(tmp_path: Path) -> None:
    write_seeded_model(tmp_path, serving_mixes.SHAPE)
    found = row(Golden(open_checkpoint(tmp_path)), 2, 8)
    assert (found["backend"], found["wrong"]) == ("reference", [])
    assert found["counts"]["logits compared"] > 20


def wrong(engine: Any) -> list[Any]:
    asked = requests(40, engine.config)
    expected = [alone(Counting(4), each) for each in asked]
    return [bad for seed in range(6) for bad in mix(engine, asked, expected, seed)[1]]


class Neighbours(Counting):
    """An engine whose logits feel how many texts are in the pass."""

    def step_all(self, tokens: list[int]) -> np.ndarray:
        return super().step_all(tokens) * np.float32(1 + 1e-7 * sum(token != 0 for token in tokens[1:]))


def test_logits_that_depend_on_neighbours_are_seen() -> None:
    assert not wrong(Counting(4))
    assert any("request" in each for each in wrong(Neighbours(4)))


def test_a_sequence_that_is_not_freed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    end = XlaScheduler._end

    def leaking(self: XlaScheduler, sequence: Any, reason: Any, error: Any = None) -> None:
        slot = sequence.slot
        end(self, sequence, reason, error)
        if reason == "cancelled" and slot >= 0:
            self._slots[slot].free = False

    monkeypatch.setattr(XlaScheduler, "_end", leaking)
    asked = requests(20, Counting(4).config)
    monkeypatch.setattr(serving_mixes, "IN_A_MIX", 4)  # there are as many slots
    found = [bad for seed in range(40) for bad in mix(Counting(4), asked, [Answered([], [], None)] * 20, seed)[1]]
    assert {"slots"} == {bad["held"] for bad in found if "held" in bad}


@pytest.mark.parametrize(
    ("got", "wrong"),
    [
        (Answered(["a", "b"], [1, 2], "stop"), False),
        (Answered(["a", "b"], [1, 2], "length"), True),
        (Answered(["a"], [1], None), False),
        (Answered(["b"], [1], None), True),
        (Answered(["a"], [1], "stop"), True),
        (Answered(["a", "b"], [1, 3], "stop"), True),
    ],
)
def test_what_is_another_answer(got: Answered, wrong: bool) -> None:
    assert differs(Answered(["a", "b"], [1, 2], "stop"), got) == wrong


def test_a_thousand_were_recorded_and_none_was_wrong() -> None:
    rows = {row["backend"]: row for row in json.loads(RECORDED.read_text(encoding="utf-8"))["rows"]}
    assert rows.keys() == {"reference", "xla"}
    for found in rows.values():
        assert (found["mixes"], found["wrong"]) == (1000, [])
        assert found["counts"]["cancelled"] > 100
