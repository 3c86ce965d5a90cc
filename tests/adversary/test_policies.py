"""Declared precisions: right engines conform to their own, wrong ones do not, and a stricter policy accuses."""

from functools import cache
from pathlib import Path

import pytest
from faulty.policies import FAULTS, RIGHT
from registry import Entry, all_entries

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.ask import ask
from tritgold_conformance.golden.run import GoldenRun, judging_tokens
from tritgold_conformance.judging.judge import judge
from tritgold_conformance.policies import named_policy
from tritgold_conformance.rendering.wording import other_mode
from tritgold_conformance.results.report import Report

ALL = all_entries()
DECLARED = [name for name, entry in ALL.items() if entry.group == "right" and hasattr(entry.engine, "policy")]
WRONG = [name for name, entry in ALL.items() if entry.kind == "policy"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    write_seeded_model(path, Shape(seed=21, hidden=64, inter=96, layers=2, heads=4, kv_heads=2, context=64))
    return path


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Checkpoint:
    return open_checkpoint(folder)


@cache
def golden(checkpoint: Checkpoint, policy: str) -> GoldenRun:
    return GoldenRun.of(checkpoint, judging_tokens(20, checkpoint.config.vocab, 1), policy=named_policy(policy))


def judged(checkpoint: Checkpoint, folder: Path, entry: Entry, policy: str = "") -> Report:
    engine = EngineUnderTest(entry.engine(str(folder)), config=checkpoint.config)
    run = golden(checkpoint, policy or engine.policy)
    return judge(run, ask(engine, run), "seeded")


@pytest.mark.parametrize("name", DECLARED)
def test_right_engines_conform_to_what_they_declare(name: str, checkpoint: Checkpoint, folder: Path) -> None:
    report = judged(checkpoint, folder, ALL[name])
    assert report.verdict == "conforms", [level for level in report.levels.values() if level.status == "failed"]
    assert report.mode == f"golden.{named_policy(ALL[name].engine.policy).name}/1"


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_within_a_policy_is_found(name: str, checkpoint: Checkpoint, folder: Path) -> None:
    assert judged(checkpoint, folder, ALL[name]).verdict == "does not conform"


@pytest.mark.parametrize("name", DECLARED)
def test_undeclared_they_do_not_conform(name: str, checkpoint: Checkpoint, folder: Path) -> None:
    report = judged(checkpoint, folder, ALL[name], "float32")
    assert report.verdict == "does not conform"
    told = named_policy(ALL[name].engine.policy).name
    if told in ("kv-f16", "kv-int8", "weights-only", "logits-f16"):
        assert report.matches == f"golden.{told}/1"
        assert f"--policy {told}" in other_mode(report)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("DeclaredCacheInt8", "kv-f16"),
        ("DeclaredCacheE4m3", "kv-bf16"),
        ("DeclaredCacheBf16", "logits-bf16"),
        ("WeightsOnly", "kv-f16"),
        ("DeclaredLogitsBf16", "logits-f16"),
        ("HeadQ6K", "head-q8_0"),
        ("RoundingBf16", "kv-bf16"),
    ],
)
def test_another_policy_is_no_excuse(name: str, policy: str, checkpoint: Checkpoint, folder: Path) -> None:
    assert judged(checkpoint, folder, ALL[name], policy).verdict == "does not conform"


@pytest.mark.parametrize("name", ["DeclaredCacheF16", "RoundingFloatCodesBf16", "DeclaredLogitsF16"])
def test_golden_float32_conforms_to_a_wider_one_only_where_it_rounds_as_much(
    name: str, checkpoint: Checkpoint, folder: Path
) -> None:
    """A float32 engine is within a policy's spread of whole runs; an operation alone says that it does not round."""
    policy = ALL[name].engine.policy
    report = judged(checkpoint, folder, ALL["PlainLogits"], policy)
    assert report.verdict == "conforms"


def test_each_policy_has_several_faults() -> None:
    for name in RIGHT:
        assert sum(wrong.startswith(name) for wrong in WRONG) >= 3, name
    assert len(FAULTS) >= 4
