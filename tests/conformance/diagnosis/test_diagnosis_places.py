"""Faults at places, what servers show, and runs of right engines: what is recorded, and a part of it measured again."""

import json
from pathlib import Path
from typing import Any

import pytest
from measure import diagnosis, diagnosis_places, right_runs

from tritgold_conformance.faults import FAULTS

DATA = Path(__file__).parents[3] / "docs" / "data"


def recorded(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return value


def test_a_fault_at_a_place_gives_a_row_a_level() -> None:
    m = diagnosis_places.Measurement("seeded", 8)
    rows = diagnosis_places._rows(m, "scale-never@layers.1.down", 1)
    assert [row["level"] for row in rows] == list(diagnosis_places.LEVELS)
    assert rows[0]["right"]
    assert rows[0]["named"] == ["scale-never@layers.1.down"]
    assert diagnosis_places._rows(m, "silu@q", 1) == [], "the fault has no such place"
    assert diagnosis_places._rows(m, "silu@ffn_act", 1) == [], "that is the fault everywhere"


def test_what_a_server_with_a_fault_shows() -> None:
    row = diagnosis_places._served(diagnosis_places.Measurement("seeded", 8), FAULTS["silu"])
    assert row is not None
    assert (row["named"], row["http_right"], row["http_visible"], row["text_visible"]) == (["silu"], True, True, True)


def test_rows_of_new_faults_take_their_places() -> None:
    before = recorded("diagnosis-seeded")
    new = {
        **before,
        "matrix": [{**row, "named": ["none"], "right": False} for row in before["matrix"][:4]],
        "seconds": 1,
    }
    found = diagnosis.merged(before, new)
    assert len(found["matrix"]) == len(before["matrix"])
    assert found["matrix"][:4] == new["matrix"]
    assert found["matrix"][4:] == before["matrix"][4:]
    assert found["seconds"] == before["seconds"] + 1
    with pytest.raises(ValueError, match="different models"):
        diagnosis.merged(before, {**new, "tokens": 8})


def test_a_round_of_right_engines() -> None:
    made = {
        name: engine
        for name, engine in right_runs.right_engines().items()
        if name in ("PlainLogits", "DeclaredCacheF16")
    }
    wrong = type("Wrong", (made["PlainLogits"],), {"head": lambda self, x: 1.01 * made["PlainLogits"].head(self, x)})
    row = right_runs.one_round(2, {**made, "Wrong": wrong})
    assert row["runs"] == {"float32": 2, "kv-f16": 1}
    assert {name for name, *_ in row["accused"]} == {"Wrong"}
    assert right_runs.one_round(1, made)["runs"] == {"float32": 1}, "another policy in every third round"


def test_a_largest_code_of_minus_128_is_no_fault_in_bfloat16() -> None:
    """x * s rounded to bfloat16 may be -127.99; this model was accused by its statistics, and then by its logits."""
    row = right_runs.one_round(3, {"RoundingBf16": right_runs.right_engines()["RoundingBf16"]})
    assert row["runs"] == {"bf16": 1}
    assert row["accused"] == []


def test_rounds_end_when_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is reported, with the most that right engines may be accused: 3 / runs; the next call goes on."""
    row = {"round": 0, "tokens": 3, "runs": {"float32": 60}, "accused": []}
    monkeypatch.setattr(right_runs, "one_round", lambda number, made: {**row, "round": number})
    journal = right_runs.Journal(tmp_path / "rows")
    assert right_runs.report(3, journal, minutes=-1)["rounds"] == 0
    found = right_runs.report(2, journal)
    assert (found["rounds"], found["runs"], found["at_most"]) == (2, 120, 0.025)
    assert right_runs.report(3, right_runs.Journal(tmp_path / "rows"))["rounds"] == 3
    accused = {**row, "accused": [["PlainLogits", "logits", "off"]]}
    monkeypatch.setattr(right_runs, "one_round", lambda number, made: accused)
    assert right_runs.report(1)["at_most"] is None


def test_no_right_engine_was_accused_over_policies() -> None:
    found = recorded("right-runs")
    assert found["accused"] == 0, found["accusations"]
    assert found["runs"] == sum(found["by_policy"].values()) >= 10_000
    assert {"float32", "bf16", "kv-f16", "kv-int8", "head-q6_k", "weights-only", "logits-bf16"} <= found[
        "by_policy"
    ].keys()


def test_what_is_recorded_of_places_holds_the_bars() -> None:
    summary = recorded("diagnosis-places-seeded")["summary"]
    for level, bar in (("operations", 0.9), ("trace", 0.9)):
        assert summary[level]["right"] >= bar * summary[level]["visible"], summary[level]["missed"]
    for model, seen in (("seeded", 80), ("kjv-ar", 90)):
        http = recorded(f"diagnosis-places-{model}")["summary"]["http"]
        assert http["visible"] >= seen
        assert http["right"] >= 0.9 * http["visible"], model
