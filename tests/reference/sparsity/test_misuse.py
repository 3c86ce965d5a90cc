"""What no rule may take: options that only look like numbers, arrays that are not activations and no weights."""

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from refusals import frugal, refusal

from tritgold.quantize import absmax_int8
from tritgold.sparsity.activation import ActivationRule, MaskingRule
from tritgold.sparsity.attention import AttentionRule
from tritgold.sparsity.rules import SPARSITY_RULES, sparsity_rule

OPTIONS = [
    (name, field.name)
    for name, rule in SPARSITY_RULES.items()
    for field in fields(rule)  # type: ignore[arg-type]
    if not isinstance(field.default, bool)
]
X = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)


@pytest.mark.parametrize(("name", "option"), OPTIONS)
@pytest.mark.parametrize("value", [True, math.nan, math.inf, "abc", 10**400, 10**23, [1]], ids=lambda v: str(v)[:9])
def test_what_is_no_number_is_refused(name: str, option: str, value: Any) -> None:
    if (name, option, value) == ("threshold", "threshold", 10**23):
        return  # a number like any other
    assert refusal(lambda: sparsity_rule(name, **{option: value})).kind == "sparsity-option"


@pytest.mark.parametrize("name", [name for name, rule in SPARSITY_RULES.items() if issubclass(rule, ActivationRule)])
def test_activations_are_a_matrix(name: str) -> None:
    rule: Any = sparsity_rule(name)
    for x in (X[0], X[None], X[:, :0], X.astype(complex), X.tolist()):
        if isinstance(rule, MaskingRule):
            assert refusal(lambda x=x: rule.sparsify(x)).kind == "activation-shape"
    assert rule.quantize(X[:0], "attn_in", absmax_int8)[0].shape == (0, 16), "no token is a pass, too"
    if isinstance(rule, MaskingRule):
        assert rule.sparsify(X[:0]).values.shape == (0, 16)


@pytest.mark.parametrize("name", [name for name, rule in SPARSITY_RULES.items() if issubclass(rule, AttentionRule)])
@pytest.mark.parametrize(("start", "block"), [(-9, 1), (0, -1), (0, 0), (0, 1.5), (1.5, 1), (0, 10**30), (True, 1)])
def test_queries_stand_somewhere(name: str, start: Any, block: Any) -> None:
    rule: Any = sparsity_rule(name)
    weights = np.full((2, 4, 4), 0.25, np.float32)
    assert refusal(lambda: rule.sparsify(weights, start, block)).kind == "attention-shape"
    assert refusal(lambda: rule.sparsify(weights[0], 0)).kind == "attention-shape"
    assert refusal(lambda: rule.sparsify(weights[:, :, :0], 0)).kind == "attention-shape"


@pytest.mark.parametrize("group", [17, 30_000_000, 2**31 - 1])
def test_a_group_longer_than_the_row_costs_nothing_and_keeps_its_share_of_all_of_it(group: int) -> None:
    with frugal():
        kept = sparsity_rule("q_sparse", keep=0.25, group=group).mask(X).sum(axis=1)  # type: ignore[attr-defined]
    assert kept.tolist() == 3 * [min(16, group // 4)]
