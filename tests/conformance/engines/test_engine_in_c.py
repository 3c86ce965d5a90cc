"""docs/examples/engine.c: it conforms, and a word changed in it is found."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from asked_once import judge
from next_token_rows import SMALL

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold_conformance.contract.engine import BEHAVIOURS
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.golden.run import GoldenRun, judging_tokens
from tritgold_conformance.judging.check import check
from tritgold_conformance.questions.ladder import ONE_TEXT, ladder_of
from tritgold_conformance.questions.text_and_bytes import answer_of, questions
from tritgold_conformance.results.levels import OF_THE_LADDER, WEAKEST
from tritgold_conformance.results.report import Report

ROOT = Path(__file__).parents[3]


def statuses(report: Report) -> dict[str, str]:
    return {name: level.status for name, level in report.levels.items()}


# ---- programs that keep to it --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def c_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc) here")
    target = tmp_path_factory.mktemp("c") / "engine"
    source = ROOT / "docs" / "examples" / "engine.c"
    options = ["-O2", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run([compiler, *options, "-o", str(target), str(source), "-lm"], check=True)
    return target


def assert_c_conforms(engine: Path, checkpoint: Checkpoint, path: Path, tokens: int, depth: str = ONE_TEXT) -> None:
    golden = GoldenRun.of(checkpoint, judging_tokens(tokens, checkpoint.config.vocab, seed=1))
    ladder = ladder_of(checkpoint.config, golden.tokens, depth, 1)
    program = load_engine(f"cmd:{shlex.quote(os.path.join('.', engine))}", path, checkpoint, tokens)
    report, _ = check(golden, program, "m", ladder=ladder)
    assert report.exit_code == 0, report.levels
    ladder_levels = OF_THE_LADDER if ladder is None else ()
    assert {n for n, s in statuses(report).items() if s == "not assessed"} == {
        "packed_bytes",
        "statistics",
        "next_tokens",
        "timed",
        *ladder_levels,
        *BEHAVIOURS,
        WEAKEST,
    } - {"generate"}
    assert report.levels["generate"].status == "passed"
    assert report.engine.speed is not None
    assert report.engine.speed.clock == "engine"
    assert report.engine.name == "engine.c"


def test_the_engine_in_c_conforms_on_the_embedded_model(c_engine: Path) -> None:
    from tritgold.golden import trained_model

    path = trained_model("kjv-ar")
    assert_c_conforms(c_engine, open_checkpoint(path), path, 24)


def test_the_engine_in_c_conforms_on_a_random_model(
    c_engine: Path, golden: GoldenRun, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named as the page names it, from its own folder."""
    monkeypatch.chdir(c_engine.parent)
    assert_c_conforms(Path("./engine"), golden.checkpoint, model, 12, "quick")


def test_the_engine_in_c_conforms_on_a_llama_model(c_engine: Path, tmp_path: Path) -> None:
    """SiLU, dividing scales, no sub-norms, a head of its own."""
    from small_models import llama_like

    path = llama_like(tmp_path / "llama", SMALL).write(tmp_path / "llama")
    checkpoint = open_checkpoint(path)
    assert (checkpoint.config.activation, checkpoint.config.sub_norms) == ("silu", False)
    assert_c_conforms(c_engine, checkpoint, path, 9)


def test_the_engine_in_c_writes_greedy_text_and_leaves_drawing_out(
    c_engine: Path, golden: GoldenRun, model: Path
) -> None:
    engine = load_engine(f"cmd:{c_engine}", model, golden.checkpoint, 9)
    right = Mutant(golden.checkpoint)
    asked = [q for q in questions(right, golden.tokens[:5]) if q.method == "generate"]
    drawn = [bool(q.arguments[2].get("temperature")) for q in asked]
    assert drawn.count(False) == 6
    given = [engine.ask(q.method, *q.arguments) for q in asked]
    assert [answer is None for answer in given] == drawn
    assert all(answer in (None, answer_of(right, q)) for q, answer in zip(asked, given, strict=True))
    assert engine.ask("generate", [1, 2], 0, {}) == []


def test_a_loop_in_c_that_goes_past_its_stops_fails(golden: GoldenRun, model: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "examples" / "engine.c").read_text()
    assert text.count("i < stops") == 1
    (tmp_path / "engine.c").write_text(text.replace("i < stops", "i < 1"))
    subprocess.run(["cc", "-O2", "-std=c99", "-o", tmp_path / "bad", tmp_path / "engine.c", "-lm"], check=True)
    engine = load_engine(f"cmd:{tmp_path / 'bad'}", model, golden.checkpoint, 9)
    stops = next(q for q in questions(Mutant(golden.checkpoint), golden.tokens[:5]) if "ended by" in q.label)
    assert len(engine.ask(stops.method, *stops.arguments)) > len(answer_of(Mutant(golden.checkpoint), stops))


def test_a_fault_in_c_is_found(c_engine: Path, golden: GoldenRun, model: Path, tmp_path: Path) -> None:
    """The same source with one word changed."""
    text = (ROOT / "docs" / "examples" / "engine.c").read_text()
    assert text.count("(int8_t)rintf(") == 1
    (tmp_path / "engine.c").write_text(text.replace("(int8_t)rintf(", "(int8_t)truncf("))
    subprocess.run(["cc", "-std=c99", "-o", str(tmp_path / "bad"), str(tmp_path / "engine.c"), "-lm"], check=True)
    report = judge(golden, load_engine(f"cmd:{tmp_path / 'bad'}", model, golden.checkpoint, 9), "small")
    assert report.exit_code == 1
    assert report.first_divergence is not None
    assert report.first_divergence.name == "layers.0.attn_in.codes"
    assert "truncation" in report.first_divergence.what
