"""The reports in docs/data are what the measurements give: a part of each is measured again."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measure import diffusion_thresholds, kv_error, report, sparsity_cosine, text

from tritgold.checkpoint import open_checkpoint
from tritgold.golden import trained_model
from tritgold.kv_cache.kv_scheme import SCHEMES
from tritgold.model import forward
from tritgold.sparsity.rules import SPARSITY_RULES

DATA = Path(__file__).parents[2] / "docs" / "data"


def recorded(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return value


def test_errors_of_the_kv_caches_are_those_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = recorded("kv-error")["attention"]
    named = {name for name, _ in kv_error.SCHEMES}
    assert named == SCHEMES.keys() == {row["scheme"].split("-")[0] for row in rows}
    assert {row["context"] for row in rows} == set(kv_error.CONTEXTS)
    again = ("q4_0", "kivi2")
    monkeypatch.setattr(kv_error, "SCHEMES", tuple((name, {}) for name in again))
    assert list(kv_error.attention(kv_error.CONTEXTS)) == [row for row in rows if row["scheme"] in again]


def test_what_a_coarse_cache_does_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_error, "SCHEMES", (("f32", {}), ("turboquant", {"bits": 2})))
    exact, coarse = kv_error.model(12)
    assert (exact["divergence"], exact["same_token"]) == (0, 1)
    assert (coarse["scheme"], coarse["bits"]) == ("turboquant-bits-2", 2.25)
    assert 0.001 < coarse["divergence"] < 1


def test_sparsity_on_gaussian_numbers_is_that_recorded() -> None:
    found = recorded("sparsity-cosine")
    cases = (*sparsity_cosine.SWEEPS, *sparsity_cosine.OTHERS)
    assert [sparsity_cosine.activation(case) for case in cases] == found["activations"]
    assert list(sparsity_cosine.attention()) == found["attention"]
    assert {row["rule"].split(":")[0] for row in found["model"]} == SPARSITY_RULES.keys()


def test_measured_cosines_are_the_closed_form() -> None:
    for row in recorded("sparsity-cosine")["activations"]:
        if row["expected"] is not None:
            assert row["cosine"] == pytest.approx(row["expected"], abs=0.003)


def test_sparsity_on_the_model_is_that_recorded() -> None:
    found = {row["rule"]: row for row in recorded("sparsity-cosine")["model"]}
    cases = (("none", {}), ("top_k", {"keep": 0.5}), ("attention_dynamic", {}))
    for row in sparsity_cosine.model(cases, sparsity_cosine.TOKENS):
        assert row == found[row["rule"]]


def test_a_row_of_the_thresholds_is_that_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All ten openings by the one way that is quick: greedy decides a block in one pass. What it is compared with
    takes 32 passes, so here it is compared with itself."""
    found = recorded("diffusion-thresholds")
    model, judge = text.opened("kjv-dlm"), text.opened("kjv-ar")
    assert found["model_hash"] == model.model_hash()
    measured = diffusion_thresholds.Measurement(model, judge, text.openings(), diffusion_thresholds.TOKENS)
    monkeypatch.setattr(diffusion_thresholds, "one_a_pass", lambda way: diffusion_thresholds.options_of(way, 1.0))
    (greedy,) = measured.rows("greedy", ())
    assert greedy == {**next(row for row in found["rows"] if row["way"] == "greedy"), "same": 1.0}


def test_two_openings_by_threshold() -> None:
    """Of eight tokens in blocks of 32: one a pass is itself, and a low threshold saves passes and changes tokens."""
    model, judge = text.opened("kjv-dlm"), text.opened("kjv-ar")
    measured = diffusion_thresholds.Measurement(model, judge, text.openings()[:2], 8)
    assert measured.one_a_pass("fast-dllm-v2")["same"] == 1
    bold, careful = measured.rows("fast-dllm-v2", (0.05, 0.99))
    assert careful["same"] == 1
    assert bold["same"] < 1
    assert bold["forwards_per_block"] < careful["forwards_per_block"] == 8
    assert bold["tokens_per_forward"] > careful["tokens_per_forward"] == 1
    a, b = (diffusion_thresholds.Diffused(tokens, [], "length", ()) for tokens in ([1, 2, 3], [1, 5, 3, 4]))
    assert diffusion_thresholds.share([a], [b]) == 0.5, "two of four positions"


def test_the_thresholds_are_all_there() -> None:
    found = recorded("diffusion-thresholds")
    ways = diffusion_thresholds.WAYS
    expected = [(way, t) for way in ways for t in ((None,) if way == "greedy" else diffusion_thresholds.THRESHOLDS)]
    assert [(row["way"], row["threshold"]) for row in found["rows"]] == expected
    assert [row["way"] for row in found["one_a_pass"]] == list(ways)
    assert all(row["same"] == 1 for row in found["one_a_pass"])
    assert {0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99} <= set(diffusion_thresholds.THRESHOLDS)


def test_nats_are_those_of_one_token_after_the_other() -> None:
    judge = open_checkpoint(trained_model("kjv-ar"))
    prompt, tokens = [0, 5, 9], [7, 8, 5]
    total = 0.0
    for at, token in enumerate(tokens):
        logits = forward(prompt + tokens[:at], judge.weights, judge.config)[-1].astype(np.float64)
        total -= logits[token] - logits.max() - math.log(np.exp(logits - logits.max()).sum())
    assert text.nats_a_token(judge, prompt, tokens) == pytest.approx(total / 3, rel=1e-9)


def test_a_report_is_json_a_row_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    report.show({"schema": "s", "shape": {"a": 1}, "rows": [{"x": 0.5}, {"x": None}]})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"schema": "s", "shape": {"a": 1}, "rows": [{"x": 0.5}, {"x": None}]}
    assert printed.count("\n") == 8
    assert report.cosine(np.zeros((1, 3)), np.ones((1, 3))).tolist() == [0.0]
