"""The row ``block-pass``: which passes it times, and that a pass is their mean."""

from pathlib import Path
from typing import Any

import pytest

from tritgold.checkpoint import open_checkpoint
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.bench import rows
from tritgold_conformance.bench.plan import Plan
from tritgold_conformance.bench.precheck_rows import golden_options

PLAN = Plan(rows=("block-pass",), threads=(1,))
WHOLE, PARTED = PLAN.cases("block-pass")


def test_a_pass_is_the_mean_of_those_that_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def diffuse(engine: Any, prompt: list[int], tokens: int, case: dict[str, Any]) -> tuple[list[int], int]:
        asked.append((case, len(prompt), tokens))
        return [], 7

    def timed(work: Any) -> list[float]:
        work()
        return [1.4]

    monkeypatch.setattr(rows, "timed", timed)
    measured = rows.Rows(object(), 300, 64, diffuse).measure("block-pass", PARTED)
    assert measured["seconds"] == [pytest.approx(0.2)]
    assert asked == [(PARTED, 17, 7)] * 2, "once to compile"


def test_with_the_cache_all_passes_but_the_first_read_the_sub_block(tmp_path: Path) -> None:
    write_seeded_model(tmp_path, Shape(seed=1, hidden=16, inter=16, layers=1, heads=2, kv_heads=1, context=64))
    checkpoint = open_checkpoint(tmp_path)
    prompt = list(range(17))
    for case, read in ((WHOLE, [32] * 7), (PARTED, [32, *[8] * 6])):
        options = golden_options(case, checkpoint.config.vocab)
        model = reference_block_model(checkpoint.weights, checkpoint.config, options, 64)
        done = block_diffusion(prompt, checkpoint.config, model, 7, options)
        assert [one.fed for one in done.passes] == read
