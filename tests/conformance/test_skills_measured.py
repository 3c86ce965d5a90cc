"""docs/data/skills-*.json are what is measured, of everything there is; and the sentences of the page are theirs."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import skills_seen
import skills_tables
from measure import skills_accuracy, skills_answers
from measure.kv_error import schemes
from measure.skills_answers import AR, figures, of_mutant
from scripts import script

from tritgold.decode.diffusion_presets import PRESETS
from tritgold.errors import ConfigError, NonFiniteError
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.layers.arithmetic import ARITHMETICS, GOLDEN_ARITHMETIC
from tritgold.skills import TASKS
from tritgold.sparsity.rules import SPARSITY_RULES, sparsity_rule
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.policies import PARTS
from tritgold_conformance.scoring import greedy

DATA = Path(__file__).parents[2] / "docs" / "data"
Row = dict[str, Any]
FEW = 0, 9  # tasks


def recorded(part: str) -> list[Row]:
    rows: list[Row] = json.loads((DATA / f"skills-{part}.json").read_text(encoding="utf-8"))["rows"]
    return rows


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[[Row], str]:
    """Each model is asked one question of each of FEW. Gives what a recorded row says of those."""
    asked = [skills_answers.questions(AR, 1)[task] for task in FEW]
    monkeypatch.setattr(skills_answers, "questions", lambda *_: asked)
    return lambda row: "".join(row["answers"][task * row["of"] // len(TASKS)] for task in FEW)


def test_schemes_and_rules_cost_the_answers_that_are_recorded(few: Callable[[Row], str]) -> None:
    schemes_there = {row["scheme"]: row for row in recorded("caches")}
    for found in skills_accuracy.caches(1, [kv_scheme("f32"), kv_scheme("fake_fp8")]):
        assert found["answers"] == few(schemes_there[found["scheme"]])
    rules_there = {row["rule"]: row for row in recorded("sparsity")}
    none, window = skills_accuracy.sparsity(1, (("none", {}), ("attention_window", {"window": 8})))
    assert window["answers"] == few(rules_there[window["rule"]]) == "0" * len(FEW)
    assert (window["lost"], window["gained"]) == (none["right"], 0)


def test_faults_cost_the_answers_that_are_recorded(few: Callable[[Row], str]) -> None:
    there = {row["fault"]: row for row in recorded("faults")}
    for found in skills_accuracy.faults(1, [FAULTS["kv-heads-tiled"]]):
        assert found["answers"] == few(there[found["fault"]])
    assert there["kv-heads-tiled"]["effect"] == found["effect"] == "destroys"
    assert {row["effect"] for name, row in there.items() if name} == set(skills_tables.EFFECTS)


def test_policies_cost_the_answers_that_are_recorded(few: Callable[[Row], str]) -> None:
    rows = {row["policy"]: row for row in recorded("policies")}
    mutant = Mutant(skills_answers.opened(AR)[0], skills_accuracy.declared(PARTS["weights-only"]))
    assert of_mutant(mutant, 1) == few(rows["weights-only"])
    for name in ("logits-bf16", "head-q6_k", "bf16"):
        assert skills_accuracy.declared(PARTS[name]) != GOLDEN_ARITHMETIC


def test_everything_there_is_has_a_row() -> None:
    assert [row["scheme"] for row in recorded("caches")] == [scheme.id for scheme in schemes()]
    assert {row["rule"].partition(":")[0] for row in recorded("sparsity")} == SPARSITY_RULES.keys()
    modes = {mode.id for mode in ARITHMETICS} | {"golden.float32/1"}
    assert {row["policy"] for row in recorded("policies")} == modes | PARTS.keys()
    assert [row["preset"] for row in recorded("presets")] == [skills_accuracy.ONE_A_PASS, *PRESETS]
    mutant = Mutant(skills_answers.opened(AR)[0])
    changing = [f.name for f in FAULTS.values() if f.area in skills_accuracy.BY_ANSWERS and f.apply(mutant)]
    assert [row["fault"] for row in recorded("faults")] == [None, *changing]
    for part in ("caches", "sparsity", "policies", "faults"):
        rows = recorded(part)
        assert {len(row["answers"]) for row in rows} == {rows[0]["of"]}
        assert rows[0]["of"] % len(TASKS) == 0


def test_the_records_are_of_the_models_that_are_there() -> None:
    for part in skills_accuracy.PARTS:
        report = json.loads((DATA / f"skills-{part}.json").read_text(encoding="utf-8"))
        for name, digest in report["models"].items():
            assert digest == skills_answers.opened(name)[0].model_hash(), f"make skills: {part} is of another {name}"


def test_engines_that_compute_the_same_are_right_in_the_same_tasks() -> None:
    rows = [row for row in recorded("engines") if row["model"] == AR]
    right = {name: [r["right"] for r in rows if r["engine"] == name] for name in ("reference", "xla")}
    assert right["reference"] == right["xla"]


def test_answers_by_steps_are_those_of_one_prefill_unless_a_thing_acts_on_steps() -> None:
    """A few questions, each read both ways: equal for what acts on rows, and not for a fault of the KV cache."""
    checkpoint, tokenizer = skills_answers.opened(AR)
    asked = [skills_answers.questions(AR, 1)[task] for task in FEW]

    def read(mutant: Mutant, by_steps: bool) -> str:
        engine = EngineUnderTest(FaultyEngine(mutant, 64), config=mutant.config, checked=False)
        return skills_answers.marks(greedy.score(engine, asked, checkpoint.config, tokenizer, by_steps=by_steps))

    golden = Mutant(checkpoint)
    for arithmetic in (
        sparsity_rule("top_k", keep=0.3).arithmetic(),
        skills_accuracy.declared(PARTS["bf16"]),
    ):
        mutant = replace(golden, arithmetic=arithmetic)
        assert read(mutant, True) == read(mutant, False)
    shifted = FAULTS["kv-values-shifted"].apply(golden)
    assert shifted is not None
    assert read(shifted, True) != read(shifted, False) == read(golden, True)


def test_an_answer_that_is_not_finite_is_wrong() -> None:
    def refuse(x: Any) -> Any:
        raise NonFiniteError("is not finite", kind="activation-non-finite")

    mutant = Mutant(skills_answers.opened(AR)[0], replace(GOLDEN_ARITHMETIC, quantize=refuse))
    assert of_mutant(mutant, 1) == "0" * len(TASKS)


def test_presets_lose_beside_one_token_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two short questions; a preset that the model cannot be decoded by says why, in the table too."""
    asked = skills_answers.questions(skills_accuracy.DLM, 1)[:2]
    monkeypatch.setattr(skills_accuracy, "questions", lambda *_: asked)
    score = skills_accuracy.diffused.score

    def refused(engine: str, checkpoint: Any, asked: Any, tokenizer: Any, way: str, threshold: float) -> Any:
        if way == "llada":
            raise ConfigError("is not usable", kind="diffusion-option", got="full")
        return score(engine, checkpoint, asked, tokenizer, way, threshold)

    monkeypatch.setattr(skills_accuracy.diffused, "score", refused)
    first, greedy_row, llada = skills_accuracy.presets(7, ["greedy", "llada"])
    assert (first["preset"], first["lost"], first["gained"]) == (skills_accuracy.ONE_A_PASS, 0, 0)
    assert greedy_row["passes_per_token"] < first["passes_per_token"]
    assert "not usable" in llada["why_not"]
    monkeypatch.setattr(skills_tables, "rows_of", lambda _: [first, greedy_row, llada])
    assert "not usable" in skills_tables.presets()
    monkeypatch.setattr(skills_seen, "rows_of", lambda _: [first, greedy_row, llada])
    assert "fewest passes with `greedy`" in skills_seen.presets()


def row(name: str, answers: str, golden: str = "1111", **more: Any) -> Row:
    return {"scheme": name, "bits": 4.0, **more, **figures(answers, golden)}


def test_sentences_say_what_the_rows_say(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("f32", "1111", bits=32.0), row("a", "1111", bits=2.0), row("b", "0011"), row("c", "1000")]
    monkeypatch.setattr(skills_seen, "rows_of", lambda _: rows)
    assert skills_seen.caches() == (
        "Of 3 schemes, 1 lose none of the 4 right answers, and 1 more than half. The largest losses: `c` (3), `b` (2). "
        "The fewest bits without a lost answer: `a`, 2 bits a value."
    )
    of = [{"model": AR, "engine": name, "task": "all", **figures(answers, "11")} for name, answers in
          (("reference", "11"), ("xla", "10"))]  # fmt: skip
    monkeypatch.setattr(skills_seen, "rows_of", lambda _: of)
    assert "of 2 answers, reference in 2 and xla in 1 are right" in skills_seen.engines()


def test_schemes_of_the_same_bits_stand_side_by_side() -> None:
    places = script("plots/skills.py").apart(
        ["a", "b", "c"], {n: {"bits": b} for n, b in zip("abc", (4, 4, 8), strict=True)}
    )
    assert places[1][0] == 4 < places[1][1] < 4.5
    assert places[1][2] == 8
