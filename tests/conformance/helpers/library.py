"""Engines with a fault of the library, for the tests of faults and of diagnosis."""

import functools

from tritgold.checkpoint import Checkpoint
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.witnesses import MODELS
from tritgold_conformance.golden.run import GoldenRun, judging_tokens


@functools.cache
def model(name: str) -> Checkpoint:
    return MODELS[name]()


@functools.cache
def golden(name: str = "seeded", tokens: int = 40) -> GoldenRun:
    checkpoint = model(name)
    return GoldenRun.of(checkpoint, judging_tokens(tokens, checkpoint.config.vocab, seed=1))


def mutant(*faults: str, on: str = "seeded") -> Mutant:
    """The golden model with these faults, which the model must be able to have."""
    made = Mutant(model(on))
    for name in faults:
        changed = FAULTS[name].apply(made)
        assert changed is not None, f"{on} has no place for {name}"
        made = changed
    return made


class Shown(FaultyEngine):
    """Gives activations and logits, and no answers to other questions."""

    unpack = generate = diffuse = serve = encode = chat = stream = None  # type: ignore[assignment]


def engine(made: Mutant, tokens: int = 40) -> EngineUnderTest:
    return EngineUnderTest(Shown(made, tokens), checked=False)
