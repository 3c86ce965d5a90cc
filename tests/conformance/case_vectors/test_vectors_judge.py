"""tritgold vectors --judge: right answers pass, whatever is wrong or missing fails, and what is not there is said."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case_flags import with_fault
from click.testing import CliRunner, Result
from foreign_answers import write_answers
from safetensors.numpy import load_file, save_file

from tritgold_conformance.case_vectors.draft import Group
from tritgold_conformance.case_vectors.judgement import rules
from tritgold_conformance.case_vectors.write import write
from tritgold_conformance.cli import main

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "cases"
    write(path)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["vectors", *map(str, arguments)])


def judged(folder: Path, answers: Path, *more: str) -> dict[str, Any]:
    done = run(folder, "--judge", answers, "--json", *more)
    found: dict[str, Any] = json.loads(done.output)
    assert done.exit_code == found.get("exit_code", 3), done.output
    return found


def test_the_golden_answers_pass_all_of_it(folder: Path, tmp_path: Path) -> None:
    found = judged(folder, write_answers(tmp_path / "answers"))
    assert (found["failed"], found["not_assessed"], found["exit_code"]) == (0, 0, 0)
    assert found["passed"] == json.loads((folder / "manifest.json").read_text())["cases"]


def test_float_noise_passes_and_more_than_noise_does_not(folder: Path, tmp_path: Path) -> None:
    def moved(units: int) -> Callable[[Group, dict[str, np.ndarray], dict[str, object]], None]:
        """Floats, so many units in the last place away; a look-up, which is exact, is left alone."""

        def change(group: Group, arrays: dict[str, np.ndarray], said: dict[str, object]) -> None:
            for name, value in arrays.items():
                if value.dtype == np.float32 and name != "operation/0/x":
                    arrays[name] = value + np.float32(units) * np.spacing(np.abs(value)) * (value != 0)

        return change

    floating = {"operations/rms-norm", "operations/rope", "operations/softmax", "operations/mix", "operations/linear",
                "operations/ffn-activation", "models/small"}  # fmt: skip
    near = write_answers(tmp_path / "near", lambda g: g.name in floating, change=moved(1))
    assert judged(folder, near)["failed"] == 0
    far = judged(folder, write_answers(tmp_path / "far", lambda g: g.name in floating, change=moved(400)))
    assert {case.rpartition("/")[0] for case, status in far["cases"].items() if status == "failed"} == floating


def quantize_only(group: Group) -> bool:
    return group.name == "operations/quantize"


Change = Callable[[dict[str, np.ndarray]], object]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a.pop("ties/codes"), "nothing was returned"),
        (lambda a: a.update({"ties/codes": a["ties/codes"][:, :-1].copy()}), "shape [1, 6], expected [1, 7]"),
        (lambda a: a.update({"ties/codes": a["ties/codes"].astype(np.float32)}), "expected an integer type like int8"),
        (lambda a: a.update({"ties/codes": -a["ties/codes"]}), "sign"),
        (lambda a: a.update({"ties/scale": np.full(1, np.nan, np.float32)}), "non-finite: 1 of 1"),
        (lambda a: a.update({"ties/scale": np.full(1, np.inf, np.float32)}), "non-finite: 1 of 1"),
        (lambda a: a.update({"ties/scale": np.zeros(0, np.float32)}), "shape [0], expected [1]"),
    ],
)
def test_one_thing_that_is_wrong_fails_its_case_alone(folder: Path, tmp_path: Path, change: Change, says: str) -> None:
    answers = write_answers(tmp_path / "a", quantize_only, change=lambda group, arrays, said: change(arrays))
    found = judged(folder, answers)
    (failure,) = found["failures"]
    assert failure["case"] == "operations/quantize/ties"
    assert says in failure["what"]
    assert found["exit_code"] == 1
    command = ["vectors", str(folder), "--judge", str(answers), "--only", "operations/quantize/ties"]
    assert failure["reproduce"].split() == ["tritgold", *command]
    alone = CliRunner().invoke(main, command)
    assert alone.exit_code == 1
    assert "failed  operations/quantize/ties" in alone.output
    assert "0 passed, 1 failed, 0 not assessed" in alone.output
    assert "half-away" in alone.output


def test_answers_that_nobody_asked_for_fail(folder: Path, tmp_path: Path) -> None:
    def more(group: Group, arrays: dict[str, np.ndarray], said: dict[str, object]) -> None:
        arrays["more/x"] = np.zeros(1, np.float32)
        said["refused"] = {"no-such-case": "truncated"}

    found = judged(folder, write_answers(tmp_path / "a", quantize_only, change=more))
    cases = {f["case"]: f["what"] for f in found["failures"]}
    assert set(cases) == {"operations/quantize/more/x", "operations/quantize/no-such-case"}
    assert set(cases.values()) == {"was answered but not requested"}


def test_optional_outputs_may_be_missing_and_must_be_right_where_they_are_there(folder: Path, tmp_path: Path) -> None:
    def products(group: Group) -> bool:
        return group.name == "operations/bit-linear"

    def without(group: Group, arrays: dict[str, np.ndarray], said: dict[str, object]) -> None:
        for name in [n for n in arrays if n.endswith("/acc")]:
            del arrays[name]

    def wrong(group: Group, arrays: dict[str, np.ndarray], said: dict[str, object]) -> None:
        arrays["tail-of-18/acc"] = np.array([[16]], np.int32)

    assert judged(folder, write_answers(tmp_path / "a", products, change=without))["failed"] == 0
    (failure,) = judged(folder, write_answers(tmp_path / "b", products, change=wrong))["failures"]
    assert failure["case"] == "operations/bit-linear/tail-of-18"


def test_what_an_engine_says_it_lacks_is_not_assessed(folder: Path, tmp_path: Path) -> None:
    def skipping(group: Group, arrays: dict[str, np.ndarray], said: dict[str, object]) -> None:
        for name in [n for n in arrays if n.startswith("random-")]:
            del arrays[name]
        said["skipped"] = ["random-*"]

    found = judged(folder, write_answers(tmp_path / "a", quantize_only, change=skipping))
    status = {case for case, s in found["cases"].items() if s == "not assessed" and "/quantize/" in case}
    assert status == {f"operations/quantize/random-{n}" for n in (1, 3, 15, 17, 31, 33, 127, 129, 160, 255, 257)}
    assert found["cases"]["files/hf/all-zero"] == "not assessed"
    assert found["exit_code"] == 0


def test_nothing_answered_is_no_pass(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = judged(folder, tmp_path / "empty")
    assert (found["passed"], found["failed"], found["exit_code"]) == (0, 0, 5)
    (tmp_path / "empty" / "operations" / "add").mkdir(parents=True)
    save_file({"other": np.zeros(1)}, tmp_path / "empty" / "operations" / "add" / "outputs.safetensors")
    assert judged(folder, tmp_path / "empty")["failed"] == 2  # the case's output is missing, another is there


# ---- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "status", "what"),
    [
        ("overlap", "passed", ""),
        ("unspecified", "not assessed", "was refused without a reason; expected overlap"),
        ("truncated", "failed", "was refused for another reason: truncated, expected overlap"),
        (None, "failed", "was not refused; expected overlap"),
    ],
)
def test_a_malformed_file_is_refused_for_the_right_reason(
    folder: Path, tmp_path: Path, said: str | None, status: str, what: str
) -> None:
    def change(group: Group, arrays: dict[str, np.ndarray], answer: dict[str, Any]) -> None:
        if said is None:
            del answer["refused"]["overlap"]
        else:
            answer["refused"]["overlap"] = said

    only = "malformed/safetensors"
    found = judged(folder, write_answers(tmp_path / "a", lambda g: g.name == only, change=change), "--only", only)
    assert found["cases"].pop(f"{only}/overlap") == status
    assert set(found["cases"].values()) == {"passed"}
    assert [f["what"] for f in found["failures"]] == [what] * (status == "failed")


def test_refusing_what_is_right_fails(folder: Path, tmp_path: Path) -> None:
    def change(group: Group, arrays: dict[str, np.ndarray], answer: dict[str, Any]) -> None:
        answer["refused"]["all-zero"] = "code-3"

    found = judged(folder, write_answers(tmp_path / "a", lambda g: g.name == "files/i2_s", change=change))
    assert [f["what"] for f in found["failures"]] == ["was refused (code-3), but is valid"]


# ---- answers that cannot be judged -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "harm",
    [
        lambda f: (f / "outputs.safetensors").write_bytes(b"\x05"),
        lambda f: (f / "answer.json").write_text("[1"),
        lambda f: (f / "answer.json").write_text('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}"),
        lambda f: (f / "answer.json").write_text('{"protocol": "other/2"}'),
        lambda f: (f / "answer.json").write_text('{"refused": {"a": 5}}'),
        lambda f: save_file({"ties/codes": np.zeros(1, np.uint64)}, f / "outputs.safetensors"),
    ],
)
def test_garbage_is_no_verdict(folder: Path, tmp_path: Path, harm: Callable[[Path], object]) -> None:
    answers = write_answers(tmp_path / "a", quantize_only)
    harm(answers / "operations" / "quantize")
    assert judged(folder, answers)["kind"] == "engine-output"


def test_a_case_that_is_none_and_answers_that_are_none(folder: Path, tmp_path: Path) -> None:
    assert judged(folder, tmp_path, "--only", "operations/nothing")["kind"] == "case-name"
    assert judged(folder, tmp_path / "none")["kind"] == "engine-output"


# ---- engines -----------------------------------------------------------------------------------------------------


def test_a_faulty_engine_is_told_what_it_looks_like(folder: Path, tmp_path: Path) -> None:
    made = with_fault("", "half-away")
    assert made is not None
    answers = write_answers(tmp_path / "a", quantize_only, lambda group: made)
    done = run(folder, "--judge", answers)
    assert done.exit_code == 1
    assert "suspect half-away (1 of 1 cases made for it failed)" in done.output
    assert "not assessed, in whole or in part: " in done.output


def test_a_fault_of_which_every_case_failed_is_suspected_first(folder: Path, tmp_path: Path) -> None:
    """Interleaved rows fail one case that is there for them, and two of four that are there for reversed bits."""

    def interleaved(group: Group, arrays: dict[str, np.ndarray], said: dict[str, object]) -> None:
        for name, trits in arrays.items():
            if trits.ndim == 2:
                whole = np.pad(trits, ((0, -len(trits) % 4), (0, 0)), constant_values=-1)
                quarters = whole.reshape(4, -1, trits.shape[1])
                arrays[name] = np.ascontiguousarray(quarters.swapaxes(0, 1).reshape(whole.shape)[: len(trits)])

    found = judged(folder, write_answers(tmp_path / "a", lambda g: g.name == "files/hf", change=interleaved))
    assert next(iter(found["suspects"])) == "hf-rows-interleaved"
    assert max(found["suspects"].values()) > found["suspects"]["hf-rows-interleaved"]


def test_what_was_not_returned_makes_no_suspect(folder: Path, tmp_path: Path) -> None:
    def without_codes(group: Group, arrays: dict[str, np.ndarray], said: dict[str, object]) -> None:
        for name in [n for n in arrays if n.endswith("codes")]:
            del arrays[name]

    found = judged(folder, write_answers(tmp_path / "a", quantize_only, change=without_codes))
    assert (found["passed"], found["suspects"]) == (0, {})


def test_a_program_of_the_command_protocol_runs_on_the_models_as_they_are(folder: Path, tmp_path: Path) -> None:
    """The example in C: its answers are judged, with nothing in between."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    program = tmp_path / "engine"
    subprocess.run([compiler, "-O2", "-std=c99", "-o", program, ROOT / "docs/examples/engine.c", "-lm"], check=True)
    for model in ("small", "llama", "deep"):
        (tmp_path / "answers" / "models" / model).mkdir(parents=True)
        inputs, outputs = folder / "models" / model, tmp_path / "answers" / "models" / model
        subprocess.run([program, inputs, outputs], check=True, capture_output=True)
        assert load_file(outputs / "outputs.safetensors")
    found = judged(folder, tmp_path / "answers")
    assert (found["failed"], found["exit_code"]) == (0, 0), found["failures"][:3]
    answered = ("models/small/", "models/llama/", "models/deep/")
    assert found["passed"] == sum(case.startswith(answered) for case in found["cases"])


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("rows-from-32-on-zero", "fails if the number is 33 or more"),
        ("tail-rows-zero", "fails if the number is more than 4 and not a multiple of it"),
    ],
)
def test_many_cases_that_fail_by_a_rule_are_told_as_the_rule(
    folder: Path, tmp_path: Path, fault: str, rule: str
) -> None:
    made = with_fault("", fault)
    assert made is not None
    products = "operations/bit-linear"
    answers = write_answers(tmp_path / "a", lambda group: group.name == products, lambda group: made)
    assert f"{products}/tokens-*: {rule}" in run(folder, "--judge", answers).output


def test_no_rule_is_made_of_little_or_of_what_contradicts_it() -> None:
    assert rules(["g/n-1", "g/n-3"], ["g/n-2"]) == {}
    assert rules(["g/n-1", "g/n-9"], ["g/n-4", "g/n-5", "g/n-6"]) == {}
    assert rules(["g/n-1", "g/n-2", "g/n-3", "g/n-4"], []) == {}
    said = "fails if the number is 3 or less"
    assert rules(["g/n-1", "g/n-3"], ["g/n-4", "g/n-5"]) == {"g/n-*": said}
    assert rules(["g/n-1", "g/n-3"], ["g/n-6", "g/n-7"]) == {"g/n-*": f"{said}; the limit may be any up to 5"}


def test_answers_in_a_folder_of_no_group_are_told(folder: Path, tmp_path: Path) -> None:
    answers = write_answers(tmp_path / "a", quantize_only)
    (answers / "operations" / "quantize").rename(answers / "operations" / "quantise")
    assert judged(folder, answers)["no_such_groups"] == ["operations/quantise"]
    assert "operations/quantise: no group has this name" in run(folder, "--judge", answers).output


def test_a_run_without_any_sum_that_leaves_int16_is_no_pass(folder: Path, tmp_path: Path) -> None:
    def skipping(left: str) -> Callable[..., None]:
        def skip(group: Group, arrays: dict[str, np.ndarray], said: dict[str, object]) -> None:
            kept = {case.name for case in group.drafts if "int16-wraps" not in flags_of[case.name] or case.name == left}
            gone = [case.name for case in group.drafts if case.name not in kept]
            for name in [n for n in arrays if n.partition("/")[0] in gone]:
                del arrays[name]
            said["skipped"] = gone

        return skip

    cases = json.loads((folder / "operations" / "bit-linear" / "cases.json").read_text())["cases"]
    flags_of = {case["name"]: case.get("flags", []) for case in cases}
    only = lambda group: group.name == "operations/bit-linear"  # noqa: E731
    found = judged(folder, write_answers(tmp_path / "a", only, change=skipping("")))
    assert (found["failed"], found["without_overflow"], found["exit_code"]) == (0, True, 5)
    found = judged(folder, write_answers(tmp_path / "b", only, change=skipping("same-sign-4096")))
    assert (found["failed"], found["without_overflow"], found["exit_code"]) == (0, False, 0)
