"""Level accuracy, the weakest: right answers compared in pairs, on models that answer and on no others."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from http_test_server import Handler, server
from rich.console import Console
from tritgold_command import call

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import EngineError
from tritgold.golden import trained_model
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.commands.judge_request import JudgeRequest
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.diagnosis.diagnose import diagnose
from tritgold_conformance.engines.ask import ask
from tritgold_conformance.engines.http_server import HttpEngine, read_url
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.golden.reference_engine import ReferenceEngine
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging import accuracy
from tritgold_conformance.judging.accuracy import CHANCE, LEAST, chance, judge_accuracy
from tritgold_conformance.judging.judge import judge
from tritgold_conformance.questions.accuracy import Exam, exam_of
from tritgold_conformance.questions.evidence import Evidence
from tritgold_conformance.questions.evidence_files import read_evidence, require_evidence_of, write_evidence
from tritgold_conformance.questions.ladder import Ladder
from tritgold_conformance.questions.text_and_bytes import REFUSED
from tritgold_conformance.rendering.html import to_html
from tritgold_conformance.rendering.markdown import to_markdown
from tritgold_conformance.rendering.terminal import render
from tritgold_conformance.results.coverage import coverage_line
from tritgold_conformance.results.report import Report, to_json
from tritgold_conformance.suite import test_judgement as suite

TOKENS = [5, 9, 200, 77]
WEAK = "weaker than every other level"


class Prefill:
    """The logits of one prefill of another engine, and nothing else."""

    name = "prefill"

    def __init__(self, engine: Any) -> None:
        self.reset, self.prefill = engine.reset, engine.prefill


class Writes:
    """Writes answers of its own, and nothing else."""

    name = "writes"

    def __init__(self, exam: Exam, change: Callable[[int, list[int]], Any] = lambda _, answer: answer) -> None:
        end = min(exam.over)
        self.known = {tuple(i.prompt): change(n, [*i.answer, end]) for n, i in enumerate(exam.items)}

    def generate(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> Any:
        made = self.known.get(tuple(prompt), [])
        if isinstance(made, Exception):
            raise made
        return made


def run_of(checkpoint: Checkpoint) -> GoldenRun:
    return GoldenRun.of(checkpoint, TOKENS)


@pytest.fixture(scope="module")
def golden() -> GoldenRun:
    return run_of(open_checkpoint(trained_model("skills-ar")))


@pytest.fixture(scope="module")
def exam(golden: GoldenRun) -> Exam:
    found = exam_of(golden.checkpoint, "quick", 1)
    assert isinstance(found, Exam)
    return found


def answers_of(engine: Any, golden: GoldenRun) -> Evidence:
    """To the judged text and the questions: a ladder without rungs."""
    return ask(EngineUnderTest(engine, checked=False), golden, ladder=Ladder("quick", 1, [TOKENS]))


def faulty(golden: GoldenRun, fault: str) -> Prefill:
    made = FAULTS[fault].apply(Mutant(golden.checkpoint))
    assert made is not None
    return Prefill(FaultyEngine(made, 256))


@pytest.fixture(scope="module")
def right(golden: GoldenRun) -> Evidence:
    return answers_of(Prefill(ReferenceEngine(golden.checkpoint, 256)), golden)


@pytest.fixture(scope="module")
def destroyed(golden: GoldenRun) -> Evidence:
    return answers_of(faulty(golden, "kv-heads-tiled"), golden)


def alone(evidence: Evidence) -> Evidence:
    """The same evidence as if nothing but the questions had been asked."""
    return replace(evidence, logits={n: rows for n, rows in evidence.logits.items() if n.startswith("accuracy")})


def spoilt(evidence: Evidence, exam: Exam, count: int) -> Evidence:
    """The first answers are wrong in their last token."""
    logits = dict(evidence.logits)
    for label in exam.labels[:count]:
        logits[label] = np.roll(logits[label], 1, axis=1)
    return replace(evidence, logits=logits)


def failing(report: Report) -> set[str]:
    return {name for name, level in report.levels.items() if level.status == "failed"}


def test_the_golden_model_passes_and_the_report_says_how_weak_that_is(golden: GoldenRun, right: Evidence) -> None:
    report = judge(golden, right, "skills-ar")
    assert (report.verdict, failing(report)) == ("conforms", set())
    level = report.levels["accuracy"]
    assert (level.status, level.compared, level.failed) == ("passed", 30, 0)
    assert level.note == f"30 of 30 right, golden 30: 0 lost, 0 gained; {accuracy.WEAKER}"
    assert report.coverage is not None
    assert f"30 questions (accuracy, {WEAK})" in coverage_line(report.coverage)
    printed = StringIO()
    render(report, Console(file=printed, width=400))
    for text in (printed.getvalue(), to_html(report), to_markdown(report), to_json(report).decode()):
        assert WEAK in text


def test_the_minimal_engine_passes(golden: GoldenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "docs" / "examples"))
    from minimal_engine import MinimalEngine

    level, wrong = judge_accuracy(golden, answers_of(Prefill(MinimalEngine(str(trained_model("skills-ar")))), golden))
    assert (level.status, level.compared, wrong) == ("passed", 30, [])


def test_a_fault_that_destroys_answers_fails_beside_the_others(golden: GoldenRun, destroyed: Evidence) -> None:
    report = judge(golden, destroyed, "skills-ar")
    assert report.verdict == "does not conform"
    assert {"logits", "accuracy"} <= failing(report)
    assert report.first_divergence is None, "an operation could not be named, and logits fail"
    assert WEAK in report.levels["accuracy"].note


def test_a_fault_that_destroys_answers_is_reported_here_where_nothing_else_is_known(
    golden: GoldenRun, destroyed: Evidence
) -> None:
    report = judge(golden, alone(destroyed), "skills-ar")
    assert (report.verdict, report.exit_code, failing(report)) == ("does not conform", 1, {"accuracy"})
    assert report.first_divergence is not None
    assert report.first_divergence.name == "accuracy"
    assert "first: copy " in report.first_divergence.what
    assert not diagnose(golden, alone(destroyed), "skills-ar", unseen=False).faults
    with pytest.raises(AssertionError, match="accuracy: "):
        suite.test_answers_are_right(report)


def test_a_fault_that_hides_from_answers_does_not_conform(golden: GoldenRun) -> None:
    report = judge(golden, answers_of(faulty(golden, "silu"), golden), "skills-ar")
    assert report.levels["accuracy"].status == "passed"
    assert report.verdict == "does not conform"
    assert "logits" in failing(report)


def test_right_answers_alone_do_not_conform(golden: GoldenRun, right: Evidence) -> None:
    report = judge(golden, alone(right), "skills-ar")
    assert report.levels["accuracy"].status == "passed"
    assert (report.verdict, report.exit_code) == ("nothing was checked", 5)


@pytest.mark.parametrize(("lost", "status"), [(1, "passed"), (LEAST - 1, "passed"), (LEAST, "failed")])
def test_a_few_lost_answers_accuse_no_engine(
    lost: int, status: str, golden: GoldenRun, right: Evidence, exam: Exam
) -> None:
    level, wrong = judge_accuracy(golden, spoilt(right, exam, lost))
    assert (level.status, bool(wrong)) == (status, status == "failed")
    assert f"{30 - lost} of 30 right, golden 30: {lost} lost, 0 gained (chance" in level.note


def test_the_bound_is_that_of_fair_coins() -> None:
    """By hand: 2**-10, 11 of 1024, and (1 + 12 + 66) of 4096."""
    assert (chance(10, 0), chance(9, 1), chance(10, 2), chance(0, 4)) == (1 / 1024, 11 / 1024, 79 / 4096, 1.0)
    assert chance(LEAST, 0) < CHANCE <= chance(LEAST - 1, 0)


def test_gains_count_against_losses(golden: GoldenRun, right: Evidence, exam: Exam) -> None:
    """The golden model of this run is wrong in four questions that the engine has right."""
    gained = {(*i.prompt, *i.answer) for i in exam.items[-4:]}

    class Wrong(GoldenRun):
        def of_text(self, tokens: list[int]) -> GoldenRun:
            run = golden.of_text(tokens)
            run.trace.arrays["logits"] = np.roll(run.logits, 1, axis=1) if tuple(tokens) in gained else run.logits
            return run

    parts = {name: getattr(golden, name) for name in ("checkpoint", "tokens", "trace")}
    level, _ = judge_accuracy(Wrong(**parts), spoilt(right, exam, LEAST))
    assert level.status == "passed"
    assert f"golden 26: {LEAST} lost, 4 gained" in level.note


def test_a_model_that_answers_too_little_is_not_assessed(
    golden: GoldenRun, right: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy, "LEAST", 31)
    level, wrong = judge_accuracy(golden, right)
    assert (level.status, wrong) == ("not assessed", [])
    assert level.note.startswith("the golden model answers 30 of 30: ")


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("tiny")
    write_seeded_model(folder, Shape(hidden=64, inter=64, layers=1, heads=2, kv_heads=1, context=64))
    return open_checkpoint(folder)


@pytest.mark.parametrize("name", ["kjv-ar", "seeded"])
def test_a_model_that_cannot_answer_is_not_asked(name: str, seeded: Checkpoint) -> None:
    golden = run_of(seeded if name == "seeded" else open_checkpoint(trained_model(name)))
    evidence = answers_of(Prefill(ReferenceEngine(golden.checkpoint, 256)), golden)
    assert set(evidence.logits) == {"logits", "continued"}
    report = judge(golden, evidence, name)
    level = report.levels["accuracy"]
    assert (level.status, level.compared) == ("not assessed", 0)
    assert level.note == "not asked: the model is neither skills-ar nor skills-dlm, which answer questions"
    assert report.coverage is not None
    assert "accuracy" in report.coverage.missing
    assert "questions" not in coverage_line(report.coverage)


def test_one_text_alone_asks_no_questions(golden: GoldenRun, right: Evidence) -> None:
    assert exam_of(golden.checkpoint, "one-text", 0) == "one text alone was asked"
    evidence = ask(EngineUnderTest(Prefill(ReferenceEngine(golden.checkpoint, 256))), golden)
    assert set(evidence.logits) == {"logits", "continued"}


@pytest.mark.parametrize("layout", ["tq2_0", "i2_s"])
def test_the_model_is_known_in_other_formats(layout: str, exam: Exam, tmp_path: Path) -> None:
    """Their scales, and so the model's hash, need not be the same."""
    done = call("convert", "skills-ar", tmp_path / "model.gguf", "--to", layout)
    assert done.exit_code == 0, done.output
    found = exam_of(open_checkpoint(tmp_path / "model.gguf"), "quick", 1)
    assert isinstance(found, Exam)
    assert found.items == exam.items


@pytest.mark.parametrize("change", ["trits", "tokenizer", "no-tokenizer", "context"])
def test_what_would_make_the_questions_senseless(change: str, golden: GoldenRun) -> None:
    checkpoint = golden.checkpoint
    if change == "trits":
        first, *rest = checkpoint.weights.layers
        changed = replace(checkpoint, weights=replace(checkpoint.weights, layers=(replace(first, k=first.v), *rest)))
        said = "not asked: the model is neither"
    elif change == "context":
        changed, said = replace(checkpoint, config=replace(checkpoint.config, context=32)), "not asked: the questions"
    elif change == "tokenizer":
        changed, said = replace(checkpoint, tokenizer="{}"), "not asked: its tokenizer cannot be read: "
    else:
        changed, said = replace(checkpoint), "not asked: the model has no tokenizer"
        object.__setattr__(changed, "tokenizer_json", lambda: None)
    found = exam_of(changed, "quick", 1)
    assert isinstance(found, str)
    assert found.startswith(said)


def test_another_seed_and_depth_are_other_questions(golden: GoldenRun, exam: Exam) -> None:
    other, more = exam_of(golden.checkpoint, "quick", 7), exam_of(golden.checkpoint, "thorough", 1)
    assert isinstance(other, Exam)
    assert isinstance(more, Exam)
    assert (len(other.items), len(more.items)) == (30, 60)
    assert other.items != exam.items


def test_an_engine_that_only_generates_writes_its_answers(golden: GoldenRun, exam: Exam) -> None:
    level, _ = judge_accuracy(golden, answers_of(Writes(exam), golden))
    assert (level.status, level.compared) == ("passed", 30)
    evidence = answers_of(Writes(exam, lambda n, answer: answer if n > 12 else [9, *answer]), golden)
    level, _ = judge_accuracy(golden, evidence)
    assert (level.status, level.failed) == ("failed", 13)
    assert ", not '" in level.note


@pytest.mark.parametrize(
    "bad", [None, RuntimeError("boom"), [], [10**6], [-1], np.array([0.5]), "words"], ids=lambda bad: type(bad).__name__
)
def test_what_is_no_answer_is_wrong(bad: Any, golden: GoldenRun, exam: Exam) -> None:
    evidence = answers_of(Writes(exam, lambda n, answer: answer if n < 15 else bad), golden)
    level, _ = judge_accuracy(golden, evidence)
    assert (level.status, level.compared, level.failed) == ("failed", 30, 15)


def test_a_prefill_that_raises_or_declines_is_wrong(golden: GoldenRun, right: Evidence, exam: Exam) -> None:
    cut = {label: rows for label, rows in right.logits.items() if label not in exam.labels[:15]}
    for said in ("prefill failed", ""):
        level, _ = judge_accuracy(golden, replace(right, logits=cut, refused=dict.fromkeys(exam.labels[:15], said)))
        assert (level.status, level.failed) == ("failed", 15)
    none = replace(right, logits={}, refused=dict.fromkeys(exam.labels, ""))
    level, _ = judge_accuracy(golden, none)
    assert (level.status, level.note[:32]) == ("not assessed", "the engine answers no questions:")


def serving(exam: Exam, golden: GoldenRun, status: Callable[[int], int]) -> Iterator[Evidence]:
    texts = {tuple(i.prompt): (n, i.question.answer) for n, i in enumerate(exam.items)}

    def handle(request: Handler, body: dict[str, Any]) -> None:
        n, text = texts.get(tuple(body["prompt"]), (-1, "?"))
        shown = {"text": text, "logprobs": {"content": [{"id": 7, "top_logprobs": [{"id": 7, "logprob": -0.5}]}]}}
        request.send(json.dumps({"choices": [shown]}), 200 if n < 0 else status(n))

    with server(handle) as url:
        config = golden.checkpoint.config
        yield answers_of(HttpEngine(*read_url(url, config, 10)[0]), golden)


def test_a_server_writes_and_its_errors_are_left_out(golden: GoldenRun, exam: Exam) -> None:
    for answered in (30, 20, 0):
        (evidence,) = serving(exam, golden, lambda n, known=answered: 200 if n < known else 500)  # type: ignore[misc]
        level, _ = judge_accuracy(golden, evidence)
        assert (level.compared, level.not_assessed) == ((answered, 30 - answered) if answered else (0, 0))
        assert level.status == ("passed" if answered else "not assessed")


def test_an_answer_of_a_server_that_cannot_be_read_is_an_error(golden: GoldenRun, exam: Exam) -> None:
    def handle(request: Handler, body: dict[str, Any]) -> None:
        shown = {"logprobs": {"content": [{"id": 7, "top_logprobs": [{"id": 7, "logprob": -0.5}]}]}}
        request.send(json.dumps({"choices": [shown]}))

    with server(handle) as url, pytest.raises(EngineError, match="holds no text"):
        answers_of(HttpEngine(*read_url(url, golden.checkpoint.config, 10)[0]), golden)


def test_evidence_with_answers_travels(golden: GoldenRun, right: Evidence, exam: Exam, tmp_path: Path) -> None:
    text = replace(right, logits={}, methods=["generate"], answers={exam.labels[0]: " x", exam.labels[1]: REFUSED})
    for number, evidence in enumerate((right, text)):
        write_evidence(tmp_path / str(number), evidence)
        again, _ = read_evidence(tmp_path / str(number))
        require_evidence_of(again, golden, tmp_path)
        assert judge_accuracy(golden, again) == judge_accuracy(golden, evidence)


def test_the_plan_of_a_thorough_check_names_the_questions(capsys: pytest.CaptureFixture[str]) -> None:
    with JudgeRequest("reference", model="skills-ar", depth="thorough").opened():
        assert "; 60 questions (accuracy)" in capsys.readouterr().err
