"""What each thing costs, in answers: engines, KV schemes, sparsity, policies, block diffusion, faults, on the tasks.

``python -m measure.skills_accuracy PART > docs/data/skills-PART.json``, PART one of PARTS: minutes each. Questions are
held out and of middle difficulty. transformers and llama.cpp are scored if TRITGOLD_PEERS_PYTHON is set. llama.cpp is
not the model: in its architecture for models with sub-norms it runs SiLU, where these models have squared ReLU.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from measure.kv_error import schemes
from measure.report import rounded, show
from measure.skills_answers import AR, DLM, ROOM, effect, figures, marks, of_engine, of_mutant, opened, questions
from measure.sparsity_cosine import ATTENTION, DENSE, OTHERS, SWEEPS, Case, kind, name
from tritgold.decode.diffusion_presets import PRESETS, preset
from tritgold.errors import ConfigError
from tritgold.golden import trained_model
from tritgold.kv_cache.base import KvScheme
from tritgold.layers.arithmetic import ARITHMETICS, GOLDEN_ARITHMETIC, Arithmetic
from tritgold.modes import GOLDEN
from tritgold.options import THRESHOLD
from tritgold.sparsity.base import Tally
from tritgold.sparsity.rules import sparsity_rule
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Fault, Mutant
from tritgold_conformance.policies import PARTS as POLICIES
from tritgold_conformance.policies import named_policy
from tritgold_conformance.policies.policy import Part
from tritgold_conformance.policies.roundings import bf16, f16
from tritgold_conformance.scoring import diffused, greedy
from tritgold_conformance.scoring.summary import summary

SCHEMA = "tritgold.skills_accuracy/2"
REFERENCE = "reference"
PEERS = [("transformers", "float32"), ("transformers", "bf16"), ("llama.cpp", None)]
OF_ENGINES, OF_FAULTS, OF_OTHERS = 20, 4, 8  # questions of each task
THRESHOLDS = (0.5, 0.7, 0.9, 0.99, 1.0)
WAYS = ("fast-dllm-v2", "adaptive")
BY_ANSWERS = ("scale", "activation", "accumulator", "graph", "attention", "kv-cache")  # areas that change logits
# The defaults of these rules keep more keys than a question has tokens.
SHORT: tuple[Case, ...] = (
    ("attention_top_k", {"k": 8}),
    ("attention_top_k", {"k": 2}),
    ("attention_window", {"window": 8}),
)
CASES = (*DENSE, *SWEEPS, *OTHERS, *ATTENTION, *SHORT)
ONE_A_PASS = "one token a pass"
HANDED_OUT = {"logits-f16": f16, "logits-bf16": bf16}


def engines(count: int = OF_ENGINES) -> Iterator[dict[str, Any]]:
    """A row for each engine and task, one token after the other."""
    names = [(REFERENCE, None), ("xla", None), *(PEERS if os.environ.get("TRITGOLD_PEERS_PYTHON") else [])]
    for model in (AR, DLM):
        checkpoint, tokenizer = opened(model)
        asked = questions(model, count)
        for engine_name, policy in names if model == AR else names[:1]:
            called = engine_name if policy is None else f"{engine_name} {policy}"
            _say(f"{model} {called}")
            own = None if policy is None else named_policy(policy)
            engine = load_engine(engine_name, trained_model(model), checkpoint, ROOM, policy=own)
            answers = greedy.score(engine, asked, checkpoint.config, tokenizer)
            yield from ({"model": model, "engine": called, **row} for row in summary(asked, answers))


def caches(count: int = OF_OTHERS, measured: Iterable[KvScheme] | None = None) -> Iterator[dict[str, Any]]:
    """A row for each KV scheme; the first is the exact one."""
    checkpoint, golden = opened(AR)[0], ""
    for scheme in schemes() if measured is None else measured:
        _say(scheme.id)
        answers = of_mutant(Mutant(checkpoint, new_cache=scheme.cache), count)
        golden = golden or answers
        yield {
            "scheme": scheme.id,
            "bits": scheme.bits_per_value(checkpoint.config),
            **figures(answers, golden),
        }


def sparsity(count: int = OF_OTHERS, cases: Iterable[Case] = CASES) -> Iterator[dict[str, Any]]:
    """A row for each rule, and the share of zeros that it left; the first is without one."""
    checkpoint, golden = opened(AR)[0], ""
    for case in cases:
        _say(name(case))
        rule, tally = sparsity_rule(case[0], **case[1]), Tally()
        answers = of_mutant(Mutant(checkpoint, rule.arithmetic(GOLDEN_ARITHMETIC, tally)), count)
        golden = golden or answers
        zeros = {"kind": kind(rule), "sparsity": rounded(tally.sparsity())}
        yield {"rule": name(case), **zeros, **figures(answers, golden)}


def policies(count: int = OF_OTHERS) -> Iterator[dict[str, Any]]:
    """A row for each arithmetic mode, and for each precision policy, in the golden model; the first is golden."""
    checkpoint = opened(AR)[0]
    golden = of_mutant(Mutant(checkpoint), count)
    for mode, arithmetic in ARITHMETICS.items():
        _say(mode.id)
        answers = golden if mode == GOLDEN else of_mutant(Mutant(checkpoint, arithmetic), count)
        yield {"policy": mode.id, "kind": "mode", **figures(answers, golden)}
    _say("xla")
    answers = of_engine(load_engine("xla", trained_model(AR), checkpoint, ROOM), questions(AR, count))
    yield {"policy": "golden.float32/1", "kind": "mode", **figures(answers, golden)}
    for part in POLICIES.values():
        _say(part.name)
        answers = of_mutant(Mutant(checkpoint, declared(part)), count)
        yield {"policy": part.name, "kind": part.area, **figures(answers, golden)}


def declared(part: Part) -> Arithmetic:
    """The golden model as a policy declares it: of a head of blocks a random rounding, of logits their own."""
    policy = named_policy(part.name)
    rounded_logits = HANDED_OUT.get(part.name)
    if rounded_logits is not None:
        return replace(GOLDEN_ARITHMETIC, logits=lambda x, head: rounded_logits(GOLDEN_ARITHMETIC.logits(x, head)))
    golden = policy.golden(GOLDEN_ARITHMETIC)
    return policy.perturbed(golden, 1) if part.head else golden


def thresholds(count: int = OF_OTHERS) -> Iterator[dict[str, Any]]:
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
            kept = {key: value for key, value in row.items() if key not in ("task", "level")}
            yield {"way": way, "threshold": threshold, **kept, "same_in_xla": same}


def presets(count: int = OF_OTHERS, names: Iterable[str] = PRESETS) -> Iterator[dict[str, Any]]:
    """A row for each preset at its usual threshold; the first decides one token a pass, as fast-dllm-v2 reads.

    A preset that this model cannot be decoded by has ``why_not``.
    """
    checkpoint, tokenizer = opened(DLM)
    asked, golden = questions(DLM, count), ""
    for title, way, threshold in ((ONE_A_PASS, WAYS[0], 1.0), *((each, each, THRESHOLD) for each in names)):
        _say(title)
        how = preset(way)
        row = {"preset": title, "threshold": threshold, "attention": how.attention, "shift": how.shift}
        try:
            found = diffused.score("reference", checkpoint, asked, tokenizer, way, threshold)
        except ConfigError as error:
            yield {**row, "why_not": str(error)}
            continue
        golden = golden or marks(found)
        passes = sum(answer.forwards for answer in found) / max(1, sum(answer.tokens for answer in found))
        yield {**row, "passes_per_token": round(passes, 4), **figures(marks(found), golden)}


def faults(count: int = OF_FAULTS, measured: Iterable[Fault] = tuple(FAULTS.values())) -> Iterator[dict[str, Any]]:
    """A row for each fault that the model has a place for; the first is the golden model's."""
    mutant = Mutant(opened(AR)[0])
    golden = of_mutant(mutant, count)
    yield {"fault": None, **(right := figures(golden, golden))}
    for fault in measured:
        if fault.area in BY_ANSWERS and (changed := fault.apply(mutant)) is not None:
            _say(fault.name)
            seen = {"area": fault.area, "level": fault.shown_by.level}
            row = figures(of_mutant(changed, count), golden)
            yield {"fault": fault.name, **seen, "effect": effect(row, right), **row}


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


PARTS = {
    "engines": engines,
    "thresholds": thresholds,
    "presets": presets,
    "caches": caches,
    "sparsity": sparsity,
    "policies": policies,
    "faults": faults,
}
MODELS = {"engines": (AR, DLM), "thresholds": (DLM,), "presets": (DLM,)}


def report(part: str, count: int | None = None) -> dict[str, Any]:
    """The measurement of one part. count: questions of each task."""
    make = PARTS[part]
    rows = list(make() if count is None else make(count))
    hashes = {model: opened(model)[0].model_hash() for model in MODELS.get(part, (AR,))}
    return {"schema": SCHEMA, "part": part, "models": hashes, "rows": rows}


if __name__ == "__main__":
    show(report(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None))
