"""tritgold eval on the embedded models: what it prints, what it refuses, engines that agree."""

import json
from typing import Any

import pytest
from tritgold_command import call, parsed

from tritgold.golden import trained_model
from tritgold.skills import TASKS
from tritgold_conformance.scoring.summary import wilson


def report(*words: object) -> dict[str, Any]:
    done = call("eval", *words, "--json")
    assert done.exit_code == 0, done.output
    return parsed(done)


@pytest.fixture(scope="module")
def by_reference() -> dict[str, Any]:
    return report("skills-ar", "--questions", 3)


def test_every_task_is_a_row_with_its_interval(by_reference: dict[str, Any]) -> None:
    *rows, whole = by_reference["rows"]
    assert [row["task"] for row in rows] == list(TASKS)
    assert whole["task"] == "all"
    assert (whole["right"], whole["of"]) == (sum(r["right"] for r in rows), 3 * len(TASKS))
    for row in (*rows, whole):
        assert row["interval"] == pytest.approx(wilson(row["right"], row["of"]), abs=1e-6)
    assert len(by_reference["wrong"]) == whole["of"] - whole["right"]
    assert whole["accuracy"] > 0.6


def test_the_jax_engine_is_right_where_the_golden_model_is(by_reference: dict[str, Any]) -> None:
    by_xla = report("skills-ar", "--questions", 3, "--engine", "xla")
    assert by_xla["rows"] == by_reference["rows"]
    assert by_xla["wrong"] == by_reference["wrong"]
    assert by_xla["engine"] == "xla"


def test_block_diffusion_counts_its_passes_and_both_engines_agree() -> None:
    words = ("skills-dlm", "--decode", "adaptive", "--threshold", "0.9", "--task", "copy", "--questions", 3)
    reports = [report(*words, "--engine", engine) for engine in ("reference", "xla")]
    assert reports[0]["rows"] == reports[1]["rows"]
    assert reports[0]["wrong"] == reports[1]["wrong"]
    assert 0 < reports[0]["rows"][0]["passes_per_token"] < 1
    assert (reports[0]["decode"], reports[0]["threshold"]) == ("adaptive", 0.9)


def test_another_level_and_seed_are_other_questions() -> None:
    words = ("kjv-ar", "--task", "add", "--questions", 2)
    asked = [report(*words, *more)["wrong"] for more in ((), ("--level", "hard"), ("--seed", 5))]
    assert len({json.dumps(one) for one in asked}) == 3
    assert {one["level"] for one in asked[1]} == {"hard"}


def test_a_table_for_people() -> None:
    done = call("eval", "kjv-ar", "--task", "add", "--questions", 1)
    assert done.exit_code == 0
    assert "0 of 1" in done.stdout
    assert "95 % interval" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--decode", "adaptive", "--engine", "transformers"), "--decode needs --engine reference or xla"),
        (("--task", "chess"), "'chess' is not one of"),
        (("--level", "none"), "'none' is not one of"),
        (("--threshold", "1.5"), "1.5"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], said: str) -> None:
    done = call("eval", *words)
    assert done.exit_code == 2
    assert said in done.output


def test_a_model_without_block_diffusion_is_refused() -> None:
    done = call("eval", "skills-ar", "--decode", "adaptive", "--task", "copy", "--json")
    assert done.exit_code == 3
    assert parsed(done)["kind"] == "no-diffusion"


def test_a_model_without_a_tokenizer_is_refused(tmp_path: Any) -> None:
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).write_bytes((trained_model("skills-ar") / file).read_bytes())
    done = call("eval", tmp_path, "--json")
    assert done.exit_code == 3
    assert parsed(done)["kind"] == "no-tokenizer"
