"""Sparsity rules: how much is left out, as measured, and how far that turns what is computed.

``python -m measure.sparsity_cosine > docs/data/sparsity-cosine.json``: some minutes.

``activations``: standard normal rows, before and after a rule; ``expected`` is the closed form of dropping what is
smallest, where the rule does that. ``attention``: the outputs of full attention over 512 keys of Gaussian scores.
``model``: the logits of kjv-ar after each token of a text, beside those of the golden model.
"""

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np

from measure import text
from measure.report import cosine, mean, rounded, show
from tritgold.kv_cache.random_matrices import gaussian
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.model import forward
from tritgold.portable_math import exp, pairwise_sum
from tritgold.quantize import absmax_int8
from tritgold.sparsity.activation import ActivationRule
from tritgold.sparsity.attention import AttentionRule
from tritgold.sparsity.base import SparsityRule, Tally
from tritgold.sparsity.rules import sparsity_rule

SCHEMA = "tritgold.sparsity_cosine/1"
ROWS, WIDTH, KEYS, TOKENS = 16, 4096, 512, 128
KEEPS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
THRESHOLDS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
Case = tuple[str, dict[str, Any]]
SWEEPS: tuple[Case, ...] = (
    *(("top_k", {"keep": keep}) for keep in KEEPS),
    *(("threshold", {"threshold": t}) for t in THRESHOLDS),
)
OTHERS: tuple[Case, ...] = (
    ("adaptive", {}),
    ("adaptive", {"drops_feature_0": True}),
    ("entropy", {}),
    ("q_sparse", {}),
    ("q_sparse", {"keep": 0.5, "group": 32}),
    ("q_sparse", {"rescale": False}),
    ("a4_8", {}),
)
ATTENTION: tuple[Case, ...] = (
    ("attention_top_k", {"k": 128}),
    ("attention_top_k", {"k": 64}),
    ("attention_threshold", {"threshold": 0.01}),
    ("attention_window", {}),
    ("attention_dynamic", {}),
)
DENSE: tuple[Case, ...] = (("none", {}), ("zero_skipping", {}))


def report(tokens: int = TOKENS) -> dict[str, Any]:
    """The measurement. tokens: of the text that kjv-ar reads."""
    return {
        "schema": SCHEMA,
        "activations": [activation(case) for case in (*SWEEPS, *OTHERS)],
        "attention": list(attention()),
        "model": list(model((*DENSE, *SWEEPS, *OTHERS, *ATTENTION), tokens)),
    }


def activation(case: Case) -> dict[str, Any]:
    """A rule on standard normal rows: the int8 codes as numbers against those without it."""
    x = gaussian(0, (ROWS, WIDTH)).astype(np.float32)
    rule = sparsity_rule(case[0], **case[1])
    assert isinstance(rule, ActivationRule)
    codes, scale = rule.quantize(x, "o_in", absmax_int8)
    measured = 1 - int(np.count_nonzero(codes)) / codes.size
    return {
        "rule": name(case),
        "sparsity": rounded(measured),
        "cosine": mean(cosine(x, codes / scale[:, None])),
        "expected": expected(case),
    }


def expected(case: Case) -> float | None:
    """cos = sqrt(1 - P + 2 t phi(t)) with P = P(|x| < t), for rules that drop what is below some t.

    >>> expected(("top_k", {"keep": 0.5})), expected(("a4_8", {}))
    (0.963677, None)
    """
    normal = NormalDist()
    if case[0] == "top_k":
        t = normal.inv_cdf(1 - case[1]["keep"] / 2)
    elif case[0] == "threshold":
        t = case[1]["threshold"]
    else:
        return None
    share = normal.cdf(t) - normal.cdf(-t)
    return rounded(math.sqrt(1 - share + 2 * t * normal.pdf(t)))


def attention() -> Iterator[dict[str, Any]]:
    """Full attention, scores of variance 1. With independent values of mean 0, <a v, b v> is <a, b> on average."""
    powers = exp(gaussian(1, (1, KEYS, KEYS)))
    weights = (powers / pairwise_sum(powers)[..., None]).astype(np.float32)
    for case in ATTENTION:
        rule = sparsity_rule(case[0], **case[1])
        assert isinstance(rule, AttentionRule)
        sparse = rule.sparsify(weights, 0, block=KEYS)
        turned = cosine(weights.reshape(1, -1), sparse.values.reshape(1, -1))
        yield {"rule": name(case), "sparsity": rounded(sparse.sparsity), "cosine": mean(turned)}


def model(cases: tuple[Case, ...], tokens: int) -> Iterator[dict[str, Any]]:
    """kjv-ar with a rule: zeros among what the rule is about, the mean cosine of its logits, the likeliest token."""
    read, opened = text.golden_text(tokens), text.opened("kjv-ar")
    golden = forward(read, opened.weights, opened.config)
    for case in cases:
        rule, tally = sparsity_rule(case[0], **case[1]), Tally()
        logits = forward(read, opened.weights, opened.config, arithmetic=rule.arithmetic(GOLDEN_ARITHMETIC, tally))
        same = np.argmax(golden, axis=1) == np.argmax(logits, axis=1)
        yield {
            "rule": name(case),
            "sparsity": rounded(tally.sparsity()),
            "places": {place: rounded(tally.sparsity(place)) for place in tally.of},
            "cosine": mean(cosine(golden, logits)),
            "same_token": mean(same),
            "kind": kind(rule),
        }


def name(case: Case) -> str:
    """A rule as ``--sparsity`` takes it.

    >>> name(("q_sparse", {"keep": 0.5, "rescale": False}))
    'q_sparse:keep=0.5,rescale=false'
    """
    options = [f"{option}={str(value).lower()}" for option, value in case[1].items()]
    return case[0] + (":" + ",".join(options) if options else "")


def kind(rule: SparsityRule) -> str:
    """What it is about."""
    return "attention" if isinstance(rule, AttentionRule) else "activations"


if __name__ == "__main__":
    show(report())
