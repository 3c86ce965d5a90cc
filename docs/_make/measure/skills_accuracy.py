"""What each thing costs, in answers: engines, KV schemes, thresholds and the faults of the library, on the tasks.

``python -m measure.skills_accuracy PART > docs/data/skills-PART.json``, PART one of PARTS: minutes each. Questions are
held out and of middle difficulty. transformers and llama.cpp are scored if TRITGOLD_PEERS_PYTHON is set. llama.cpp is
not the model: in its architecture for models with sub-norms it runs SiLU, where these models have squared ReLU.
"""

import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from measure.kv_error import schemes
from measure.report import show
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import NonFiniteError
from tritgold.golden import trained_model
from tritgold.skills import TASKS
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Fault, Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.policies import named_policy
from tritgold_conformance.questions import exam
from tritgold_conformance.scoring import diffused, greedy
from tritgold_conformance.scoring.summary import summary

SCHEMA = "tritgold.skills_accuracy/1"
AR, DLM = "skills-ar", "skills-dlm"
REFERENCE = "reference"
PEERS = [("transformers", "float32"), ("transformers", "bf16"), ("llama.cpp", None)]
OF_ENGINES, OF_CACHES, OF_THRESHOLDS, OF_FAULTS = 20, 2, 3, 1  # questions of each task
THRESHOLDS = (0.5, 0.7, 0.9, 0.99, 1.0)
WAYS = ("fast-dllm-v2", "adaptive")
BY_ANSWERS = ("scale", "activation", "accumulator", "graph", "attention", "kv-cache")  # areas that change logits


@cache
def opened(name: str) -> tuple[Checkpoint, Tokenizer]:
    """A trained model and its tokenizer."""
    folder = trained_model(name)
    return open_checkpoint(folder), Tokenizer(folder / "tokenizer.json")


def questions(name: str, count: int) -> list[exam.Item]:
    """Held-out questions of middle difficulty, ``count`` of each task."""
    return exam.items(opened(name)[1], TASKS, ("middle",), count)


def engines(count: int = OF_ENGINES) -> Iterator[dict[str, Any]]:
    """A row for each engine and task, one token after the other."""
    names = [(REFERENCE, None), ("xla", None), *(PEERS if os.environ.get("TRITGOLD_PEERS_PYTHON") else [])]
    for model in (AR, DLM):
        checkpoint, tokenizer = opened(model)
        asked = questions(model, count)
        for name, policy in names if model == AR else names[:1]:
            called = name if policy is None else f"{name} {policy}"
            _say(f"{model} {called}")
            own = None if policy is None else named_policy(policy)
            engine = load_engine(name, trained_model(model), checkpoint, 64, policy=own)
            answers = greedy.score(engine, asked, checkpoint.config, tokenizer)
            yield from ({"model": model, "engine": called, **row} for row in summary(asked, answers))


def caches(count: int = OF_CACHES) -> Iterator[dict[str, Any]]:
    """A row for each KV scheme: the prompt read at once, the answer token by token."""
    checkpoint = opened(AR)[0]
    for scheme in schemes():
        _say(scheme.id)
        mutant = Mutant(checkpoint, new_cache=scheme.cache)
        yield {"scheme": scheme.id, "bits": scheme.bits_per_value(checkpoint.config), **_all(mutant, count)}


def thresholds(count: int = OF_THRESHOLDS) -> Iterator[dict[str, Any]]:
    """A row for each way and threshold in the golden model, and how many answers the JAX engine gives alike."""
    checkpoint, tokenizer = opened(DLM)
    asked = questions(DLM, count)
    for way in WAYS:
        for threshold in THRESHOLDS:
            _say(f"{way} {threshold}")
            found = [
                diffused.score(engine, checkpoint, asked, tokenizer, way, threshold) for engine in diffused.ENGINES
            ]
            row = summary(asked, found[0])[-1]
            same = sum(ours == theirs for ours, theirs in zip(*found, strict=True))
            yield {"way": way, "threshold": threshold, **_figures(row), "same_in_xla": same}


def faults(count: int = OF_FAULTS) -> Iterator[dict[str, Any]]:
    """A row for each fault that the model has a place for; the first is the golden model's."""
    golden = Mutant(opened(AR)[0])
    yield {"fault": None, **_all(golden, count)}
    for fault in FAULTS.values():
        if fault.area in BY_ANSWERS and (mutant := fault.apply(golden)) is not None:
            _say(fault.name)
            yield {"fault": fault.name, "area": fault.area, "level": fault.shown_by.level, **_of(fault, mutant, count)}


def _of(fault: Fault, mutant: Mutant, count: int) -> dict[str, Any]:
    """Of a mutant; one whose activations are not finite answers nothing."""
    try:
        with np.errstate(all="ignore"):
            return _all(mutant, count)
    except NonFiniteError:
        return {"right": 0, "of": len(questions(AR, count)), "accuracy": 0.0, "interval": None}


def _all(mutant: Mutant, count: int) -> dict[str, Any]:
    asked, (checkpoint, tokenizer) = questions(AR, count), opened(AR)
    engine = EngineUnderTest(FaultyEngine(mutant, 64), config=checkpoint.config, checked=False)
    answers = greedy.score(engine, asked, checkpoint.config, tokenizer, by_steps=True)
    return _figures(summary(asked, answers)[-1])


def _figures(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("task", "level")}


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


PARTS = {"engines": engines, "caches": caches, "thresholds": thresholds, "faults": faults}


def report(part: str, count: int | None = None) -> dict[str, Any]:
    """The measurement of one part. count: questions of each task."""
    make = PARTS[part]
    rows = list(make() if count is None else make(count))
    hashes = {name: opened(name)[0].model_hash() for name in ((DLM,) if part == "thresholds" else (AR,))}
    return {"schema": SCHEMA, "part": part, "models": hashes, "rows": rows}


if __name__ == "__main__":
    show(report(sys.argv[1]))
