"""Judges whether a peer computes the model at all, by the most likely tokens that it shows, before it is timed.

Each peer quantises activations in its own way: by blocks of 256, of 64, or by rows. So its bits are not compared. It
passes if its log-probabilities are as near to one of the arithmetics known here (``golden``, ``llama-cpp-q8_k``; also
with SiLU, if the name of the architecture says so) as these are to one another, and much nearer than to a model whose
linear layers give nothing. ik_llama.cpp on an I2_S file gives nothing in this sense, and is fast.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tritgold.architectures import GGUF_ARCHITECTURES
from tritgold.formats.gguf_split import open_gguf
from tritgold.layers.arithmetic import ARITHMETICS, GOLDEN_ARITHMETIC, Arithmetic
from tritgold.model import forward
from tritgold_conformance.bench.precheck import quietly_opened
from tritgold_conformance.comparing.next_tokens import FLOOR, floored
from tritgold_conformance.golden.run import judging_tokens

LENGTHS, STEPS = (1, 2, 9, 70), 4  # of prompts, and steps after the longest: batches of one token and of many
# Least allowed error, relative, root mean squares: float16 caches and scales, the head's activations in 8 bits.
# llama.cpp is 0.007 off where all known arithmetics agree.
LEAST = 0.03
FACTOR, APART = 3.0, 4.0  # times the spread of the known arithmetics; how many times nearer than to no sums


class Shown(NamedTuple):
    """token: the generated one. likeliest: log-probabilities of the most likely tokens, by id."""

    token: int | None
    likeliest: dict[int, float]


NextTokens = Callable[[list[int], int], list[Shown]]


def verdict(next_tokens: NextTokens, path: Path) -> tuple[bool, str]:
    """(passed, description) of a peer on a GGUF file. next_tokens: (prompt, steps) -> what it shows at each step."""
    checkpoint = quietly_opened(path)
    c = checkpoint.config
    longest = min(LENGTHS[-1], c.context - STEPS - 1)
    tokens = judging_tokens(longest, c.vocab, seed=5)
    rows, found = list[int](), list[Shown]()
    for length in sorted({min(length, longest) for length in LENGTHS}):
        steps = STEPS if length == longest else 1
        shown_here = next_tokens(tokens[:length], steps)
        if len(shown_here) != steps or not all(one.likeliest for one in shown_here):
            return False, f"shows no log-probabilities after {length} tokens"
        rows += range(length - 1, length - 1 + steps)
        found += shown_here
    written = [one.token for one in found[-STEPS:-1]]
    if any(token is None or not 0 <= token < c.vocab for one in found for token in (one.token, *one.likeliest)):
        return False, "shows tokens that are not in the vocabulary"
    whole = [*tokens, *(int(token or 0) for token in written)]

    def of(arithmetic: Arithmetic, activation: Any) -> np.ndarray:
        config = replace(c, activation=activation)
        return floored(forward(whole, checkpoint.weights, config, arithmetic=arithmetic, rows=rows))

    name = str(open_gguf(path).metadata["general.architecture"])
    named = GGUF_ARCHITECTURES[name].gguf[name]
    activations = dict.fromkeys((c.activation, named))
    policies = {
        mode.name + (f", {activation}" if len(activations) > 1 else ""): of(arithmetic, activation)
        for activation in activations
        for mode, arithmetic in ARITHMETICS.items()
    }
    return _judged(policies, of(_NOTHING, c.activation), found)


def _judged(policies: dict[str, np.ndarray], nothing: np.ndarray, found: Sequence[Shown]) -> tuple[bool, str]:
    """policies, nothing: log-probabilities float64 [positions, vocab] of the known arithmetics and of the control."""
    name, off = min(((name, _apart(rows, found)) for name, rows in policies.items()), key=lambda pair: pair[1])
    control = _apart(nothing, found)
    kin = [rows for other, rows in policies.items() if other.partition(",")[2] == name.partition(",")[2]]
    ids = [np.array([*one.likeliest]) for one in found]
    spread = max(
        (_rms([a[n, i] - b[n, i] for n, i in enumerate(ids)]) for a in kin for b in kin if a is not b), default=0.0
    )
    allowed = max(LEAST * _rms([np.array([*one.likeliest.values()]) for one in found]), FACTOR * spread)
    said = f"log-probabilities {off:.2g} nats from {name} at {len(found)} positions"
    nothing_is = f"those of linear layers that give nothing are {control:.2g} away"
    if not off <= allowed:
        return False, f"{said}, allowed {allowed:.2g}; {nothing_is}"
    if not APART * off < control:
        return False, f"{said}; {nothing_is}, which is not clearly more"
    return True, f"{said}; {nothing_is}"


def _apart(rows: np.ndarray, found: Sequence[Shown]) -> float:
    return _rms([rows[n, [*one.likeliest]] - np.array([*one.likeliest.values()]) for n, one in enumerate(found)])


def _rms(differences: Sequence[np.ndarray]) -> float:
    return float(np.sqrt(np.mean(np.concatenate(differences) ** 2)))


def _no_sums(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Products that are all 0."""
    return np.zeros((codes.shape[0], trits.shape[0]), np.int32)


_NOTHING = replace(GOLDEN_ARITHMETIC, accumulate=_no_sums)


def shown(answer: dict[str, Any]) -> list[Shown]:
    """The steps of an answer, in any of the three forms of servers: with ids, OpenAI's, and by the tokens' texts.

    >>> shown({"completion_probabilities": [{"content": "t7", "probs": [{"tok_str": "t7", "prob": 1.0}]}]})
    [Shown(token=7, likeliest={7: 0.0})]
    """
    choices = answer.get("choices") or [{}]
    steps = answer.get("completion_probabilities") or (choices[0].get("logprobs") or {}).get("content") or []
    return [_step(step) for step in steps]


def _step(step: dict[str, Any]) -> Shown:
    listed = step.get("top_logprobs") or step.get("top_probs") or step.get("probs") or []
    likeliest = {}
    for entry in listed:
        token = _token(entry, "tok_str")
        share = entry.get("prob")
        value = entry["logprob"] if "logprob" in entry else np.log(share) if share and share > 0 else None
        if token is not None and value is not None:
            likeliest[token] = max(float(value), FLOOR)  # llama.cpp gives -3.4e38 for a probability of 0
    return Shown(_token(step, "content"), likeliest)


def _token(entry: dict[str, Any], text: str) -> int | None:
    """The id, or that of a plain word ``t7``; None for another text."""
    if "id" in entry:
        return int(entry["id"])
    word = re.fullmatch(r"\s*t([0-9]+)\s*", str(entry.get("token", entry.get(text, ""))))
    return int(word[1]) if word else None
