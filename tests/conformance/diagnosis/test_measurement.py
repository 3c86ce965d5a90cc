"""How often faults are named: what docs/data records holds the bars, a part of it is measured again, and it goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
from measure import diagnosis
from measure.journal import Journal

from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.noise import KINDS

DATA = Path(__file__).parents[3] / "docs" / "data"
MODELS = ("kjv-ar", "kjv-dlm", "seeded", "llama", "untied")
SOME = ["silu", "offset-missing", "kv-one-step-late", "code-3-is-0"]


def recorded(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return value


@pytest.mark.parametrize("model", MODELS)
def test_what_is_recorded_holds_the_bars(model: str) -> None:
    """Of every model on its own, over all faults that have activations."""
    found = recorded(f"diagnosis-{model}")
    known = {f.name for f in FAULTS.values() if f.area in diagnosis.MODEL_AREAS}
    rows = [row for row in found["matrix"] if row["level"] == "trace"]
    assert found["faults"] == len(known), "the library has changed: make diagnosis"
    assert {row["fault"] for row in rows} <= known
    seen = [row for row in rows if row["visible"]]
    assert sum(row["right"] for row in seen) >= 0.95 * len(seen)
    pairs = [row for row in found["paired"] if row["level"] == "trace"]
    assert sum(row["both"] for row in pairs) >= 0.8 * len(pairs)
    assert len(pairs) >= 20
    assert found["accused"] == []


def test_faults_of_architectures_are_named_where_their_parts_are() -> None:
    """On models that have the parts, among all candidates: each from operations and from traces, most from logits."""
    names = {f.name for f in FAULTS.values() if f.area == "architecture"}
    reports = {model: recorded(f"diagnosis-{model}") for model in ("qwen", "gemma", "granite")}
    for level, share in (("operations", 1), ("trace", 1), ("logits", 0.85)):
        rows = [row for found in reports.values() for row in found["matrix"] if row["level"] == level]
        assert {row["fault"] for row in rows} == names
        seen = [row for row in rows if row["visible"]]
        assert {row["fault"] for row in seen} == names
        assert sum(row["right"] for row in seen) >= share * len(seen)
    assert not any(found["accused"] for found in reports.values())


def test_a_fault_of_an_architecture_is_named_again() -> None:
    again = diagnosis.report("granite", 16, 0, 0, only=["residual-scale-missing"], levels=("operations", "logits"))
    assert [(row["named"], row["right"]) for row in again["matrix"]] == 2 * [(["residual-scale-missing"], True)]


def test_a_thousand_right_engines_were_not_accused() -> None:
    reports = [recorded(f"diagnosis-{model}") for model in MODELS]
    live = recorded("right-engines")
    runs = {kind: sum(report["noise_runs"][kind] for report in reports) for kind in KINDS}
    assert sum(runs.values()) + live["runs"] >= 1000
    assert min(runs.values()) >= 100
    assert {(row["engine"], row["threads"]) for row in live["rows"]} >= {("xla", 1), ("xla", 2), ("transformers", 1)}
    assert live["accused"] == sum(bool(row["accused"]) for row in live["rows"]) == 0
    assert all(row["levels"] for row in live["rows"]), "an engine that gives nothing is not right"


def test_rows_are_those_recorded() -> None:
    again = diagnosis.report("seeded", 16, pairs=0, noise_runs=0, only=SOME, levels=("trace", "logits"))
    rows = {(row["fault"], row["level"]): row for row in recorded("diagnosis-seeded")["matrix"]}
    assert again["matrix"] == [rows[row["fault"], row["level"]] for row in again["matrix"]]
    assert len(again["matrix"]) == 2 * len(SOME)
    assert again["summary"]["trace"]["invisible"] == ["code-3-is-0"]


def test_a_measurement_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.json.rows"
    arguments = {"pairs": 1, "noise_runs": len(KINDS), "only": ["silu", "offset-missing"], "levels": ("trace",)}
    first = diagnosis.report("seeded", 8, **arguments, journal=Journal(path))  # type: ignore[arg-type]
    assert [row["both"] for row in first["paired"]] == [True, True]
    assert first["noise_runs"] == dict.fromkeys(KINDS, 1)

    def measured_again(*_: Any) -> None:
        raise AssertionError("a row that is there is not measured again")

    monkeypatch.setattr(diagnosis.Measurement, "named", measured_again)
    second = diagnosis.report("seeded", 8, **arguments, journal=Journal(path))  # type: ignore[arg-type]
    assert second == first
    with pytest.raises(AssertionError, match="not measured again"):
        diagnosis.report("seeded", 8, **arguments)  # type: ignore[arg-type]


def test_a_model_that_calls_everything_right_would_be_seen() -> None:
    rows = [{"visible": True, "right": right, "first": right, "fault": "x", "verdict": "named"} for right in (1, 0)]
    assert diagnosis._summary(rows)["top_1"] == 0.5
    assert diagnosis._summary(rows)["missed"] == ["x"]


def test_rows_of_another_model_or_length_are_refused(tmp_path: Path) -> None:
    path, eight = tmp_path / "rows", {"model": "seeded", "tokens": 8}
    Journal(path, of=eight).row(("silu", "trace"), lambda: {"named": ["silu"]})
    assert Journal(path, of=eight).row(("silu", "trace"), lambda: None) == {"named": ["silu"]}
    with pytest.raises(ValueError, match="'tokens': 8"):
        Journal(path, of={**eight, "tokens": 16})
