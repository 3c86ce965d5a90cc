"""Faults are named from the log-probabilities of a few tokens, which is all that a server shows."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from asked_once import diagnose

from tritgold.checkpoint import open_checkpoint
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.model import forward
from tritgold_conformance.comparing.next_tokens import floored
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.noise import noisy
from tritgold_conformance.golden.run import GoldenRun, judging_tokens
from tritgold_conformance.rendering.wording import distances
from tritgold_conformance.results.diagnosis import Diagnosis

TOKENS = 6
# A part of the library, for speed; the server's own tests search all of it.
CANDIDATES = [FAULTS[name] for name in (
    "silu", "attn-residual-dropped", "ffn-residual-dropped", "scale-never", "scale-divided", "rope-missing",
    "kv-heads-tiled", "gate-and-up-swapped", "norm-eps-1e-3", "truncated", "layers-reversed", "mask-off-by-one",
)]  # fmt: skip


@cache
def golden() -> GoldenRun:
    with TemporaryDirectory() as folder:
        write_seeded_model(Path(folder), Shape(seed=9, hidden=64, inter=96, layers=2, heads=4, kv_heads=2, context=32))
        return GoldenRun.of(open_checkpoint(folder), judging_tokens(TOKENS, 259, seed=3))


def mutant(name: str) -> Mutant:
    made = FAULTS[name].apply(Mutant(golden().checkpoint))
    assert made is not None
    return made


class Server:
    """Shows the ``shown`` likeliest after a prefix, of a model that is read once."""

    def __init__(self, made: Mutant, shown: int) -> None:
        tokens, self._shown = golden().tokens, shown
        logits = forward(tokens, made.checkpoint.weights, made.config, arithmetic=made.arithmetic)
        self._rows = floored(logits)

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]]:
        row = self._rows[len(tokens) - 1]
        best = np.argsort(-row, kind="stable").tolist()
        return best[0], {token: float(row[token]) for token in best[: self._shown]}


@cache
def found(made: Mutant, shown: int = 20) -> Diagnosis:
    engine = EngineUnderTest(Server(made, shown))
    return diagnose(golden(), engine, "seeded", faults=CANDIDATES, unseen=False)


@pytest.mark.parametrize("name", ["attn-residual-dropped", "layers-reversed"])
def test_a_fault_is_named_from_twenty_tokens(name: str) -> None:
    said = found(noisy(mutant(name), seed=5))
    assert (said.verdict, [one.fault for one in said.faults], said.levels) == ("named", [name], ["next_tokens"])
    assert (said.faults[0].level, said.exit_code) == ("next_tokens", 1)
    assert said.first_divergence is not None
    assert "log-probability" in said.first_divergence.what


def test_where_one_token_has_all_of_the_probability_no_distance_is_said() -> None:
    """A model with logits 10,000 times as far apart, and an engine that drops a residual."""
    weights = golden().checkpoint.weights
    sharp = replace(golden().checkpoint, weights=replace(weights, final_norm=weights.final_norm * np.float32(1e4)))
    run = GoldenRun.of(sharp, golden().tokens)
    made = FAULTS["attn-residual-dropped"].apply(Mutant(sharp))
    assert made is not None
    said = diagnose(run, EngineUnderTest(Server(made, 259)), "sharp", faults=CANDIDATES, unseen=False)
    (one,) = said.faults
    assert "attn-residual-dropped" in (one.fault, *one.same)
    assert (one.tokens_only, one.next_best) == (True, None)
    assert "so no distance is known" in distances(one)
    assert not found(mutant("attn-residual-dropped")).faults[0].tokens_only


def test_noise_is_not_accused() -> None:
    said = found(noisy(Mutant(golden().checkpoint), seed=3))
    assert (said.verdict, said.faults, said.exit_code) == ("nothing to explain", [], 0)


def test_what_is_not_known_is_called_so() -> None:
    base = Mutant(golden().checkpoint)
    odd = replace(base.arithmetic, alter=lambda name, x, seen: x * np.float32(1.03) if name.endswith(".q.out") else x)
    said = found(replace(base, arithmetic=odd))
    assert (said.verdict, said.faults) == ("none of the known faults", [])


def test_tokens_alone_are_nothing_to_go_by() -> None:
    assert found(mutant("attn-residual-dropped"), shown=0).verdict == "nothing was checked"
