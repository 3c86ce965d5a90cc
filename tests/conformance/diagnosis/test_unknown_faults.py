"""Faults outside the library, and right engines that only round elsewhere: none is given the name of a known fault."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from asked_once import diagnose
from diagnosed import TOKENS, asked, names
from library import Shown, golden, model, mutant

from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.noise import noisy

# Ten faults that the library does not have: function or output replaced, and where the first difference must be seen.
Alter = Callable[[str, np.ndarray, Any], np.ndarray]


def _at(ending: str, change: Callable[[np.ndarray], np.ndarray]) -> Alter:
    return lambda name, value, seen: change(value) if name.endswith(ending) else value


def _third(x: np.ndarray) -> np.ndarray:
    changed = x.copy()
    changed[:, 3] = 0
    return changed


def _doubled(codes: np.ndarray) -> np.ndarray:
    return np.clip(2 * codes.astype(int), -128, 127).astype(np.int8)


def _off_by_seven(acc: np.ndarray) -> np.ndarray:
    return acc + np.where(np.arange(acc.shape[1]) % 3 == 0, 7, 0).astype(np.int32)


INVENTED: dict[str, tuple[Alter, str]] = {
    "a channel of the norm is lost": (_at(".attn_norm", _third), "layers.0.attn_norm"),
    "codes are doubled": (_at("attn_in.codes", _doubled), "layers.0.attn_in.codes"),
    "sums are off by seven": (_at(".k.acc", _off_by_seven), "layers.0.k.acc"),
    "q is 3 % too large": (_at(".q.out", lambda x: x * np.float32(1.03)), "layers.0.q.out"),
    "rotated heads are negated": (_at(".k_rope", lambda x: -x), "layers.0.k_rope"),
    "probabilities are squared": (_at(".probs", np.square), "layers.0.probs"),
    "the mix is delayed by a token": (_at(".attn_mix", lambda x: np.roll(x, 1, axis=0)), "layers.0.attn_mix"),
    "the activation is clipped": (_at(".ffn_act", lambda x: np.clip(x, -1, 1)), "layers.0.ffn_act"),
    "the second layer's FFN is halved": (_at("layers.1.down.out", lambda x: x / np.float32(2)), "layers.1.down.out"),
    "logits are shifted": (_at("logits", lambda x: x + np.float32(1)), "logits"),
}  # fmt: skip


@pytest.mark.parametrize("invented", INVENTED)
def test_a_fault_outside_the_library_is_none_of_the_known_and_is_located(invented: str) -> None:
    alter, where = INVENTED[invented]
    base = Mutant(model("seeded"))
    made = replace(base, arithmetic=replace(base.arithmetic, alter=alter))
    found = asked(noisy(made, seed=2))
    assert found.verdict == "none of the known faults"
    assert found.faults == []
    assert found.first_divergence is not None
    assert found.first_divergence.name == where
    assert found.first_divergence.layer == (int(where.split(".")[1]) if "." in where else None)
    assert not any(ranked.explains for ranked in found.ranking)


@pytest.mark.parametrize("invented", ["probabilities are squared", "the activation is clipped"])
@pytest.mark.parametrize("level", ["statistics", "logits"])
def test_it_is_none_of_the_known_from_less_too(invented: str, level: str) -> None:
    base = Mutant(model("seeded"))
    made = replace(base, arithmetic=replace(base.arithmetic, alter=INVENTED[invented][0]))
    found = asked(made, level=level)
    assert found.verdict == "none of the known faults"


@pytest.mark.parametrize("off", [3e-5, 1e-4])
def test_one_logit_that_is_off_is_no_fault_that_changes_no_logit(off: float) -> None:
    """A position's root mean square hardly moves, and many faults leave the logits as they are."""
    run = golden("seeded", TOKENS)

    class OneLogit:
        def prefill(self, tokens: list[int]) -> Any:
            logits = run.logits.copy()
            logits[5, 7] += off * np.abs(logits[5]).max()
            return logits if len(tokens) == TOKENS else None

    found = diagnose(run, EngineUnderTest(OneLogit()), "seeded", unseen=False)
    assert found.verdict == "none of the known faults"
    assert found.faults == []


def test_logits_that_are_not_those_of_its_own_trace_are_looked_at() -> None:
    class OneLogit(Shown):
        operation = step = None  # type: ignore[assignment]

        def prefill(self, tokens: list[int]) -> Any:
            logits = super().prefill(tokens)
            logits[-1, 7] += 5e-5 * np.abs(logits[-1]).max()
            return logits

    made = OneLogit(Mutant(model("seeded")), TOKENS)
    found = diagnose(golden("seeded", TOKENS), EngineUnderTest(made), "seeded", unseen=False)
    assert found.verdict == "none of the known faults"
    assert found.first_divergence is not None
    assert found.first_divergence.name == "logits"


def test_a_known_fault_beside_an_unknown_one_is_still_named() -> None:
    made = mutant("rope-missing")
    made = replace(made, arithmetic=replace(made.arithmetic, alter=INVENTED["the activation is clipped"][0]))
    found = asked(made)
    assert found.verdict == "named in part"
    assert names(found) == ["rope-missing"]
    assert [d.name for d in found.unexplained] == ["layers.0.ffn_act"]


def float_linears() -> Arithmetic:
    """As transformers does it: scaled codes times scaled weights, added up in float32; no integers anywhere."""
    seen: list[np.ndarray] = []

    def accumulate(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
        seen[:] = [codes, trits]
        return GOLDEN_ARITHMETIC.accumulate(codes, trits)

    def apply_scales(acc: np.ndarray, scale: np.ndarray, weight_scale: np.ndarray, rule: str) -> np.ndarray:
        codes, trits = (a.astype(np.float32) for a in seen)
        w = weight_scale if rule == "multiply" else np.float32(1) / weight_scale
        products = (codes / scale[:, None])[:, None, :] * (trits * w)
        return np.cumsum(products, axis=2, dtype=np.float32)[..., -1]

    return replace(GOLDEN_ARITHMETIC, accumulate=accumulate, apply_scales=apply_scales)


class WithoutSums(Shown):
    def trace(self, tokens: list[int]) -> Any:
        return {name: array for name, array in super().trace(tokens).arrays.items() if not name.endswith(".acc")}

    operation = None  # type: ignore[assignment]


@pytest.mark.parametrize("level", ["trace", "statistics", "logits"])
@pytest.mark.parametrize("tokens", [8, 16, 24])
def test_an_engine_that_adds_up_floats_is_not_accused(level: str, tokens: int) -> None:
    run = golden("seeded", tokens)
    made = WithoutSums(replace(Mutant(model("seeded")), arithmetic=float_linears()), tokens)
    shown = made.trace(run.tokens)
    assert any(
        (shown[name] != 0)[array == 0].any() for name, array in run.trace.arrays.items() if name.endswith(".out")
    )
    found = diagnose(run, EngineUnderTest(made), "seeded", level, faults=[], unseen=False)
    assert found.clean, found.first_divergence
