"""The judge before the clock: an engine, with the very options that will be timed, on a model of the same family.

What the judge of ``tritgold check`` does not see is judged here: a KV cache of fewer bits, against the golden model
with the same scheme; ``read``, against the last row of ``prefill``; ``greedy``, against the largest logit.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import TritgoldError, TritgoldWarning
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.model import forward
from tritgold_conformance.engine import Candidate
from tritgold_conformance.golden import GoldenRun, judging_tokens
from tritgold_conformance.judge import judge
from tritgold_conformance.logits import LOGIT_NOISE
from tritgold_conformance.spread import allowed_by_spread, relative_rms

TOKENS, STEPS = 8, 8
LEAST = 1e-3  # relative rms: a stored value that rounds the other way, where no code is near a tie
Opener = Callable[[Checkpoint, int, str | None], object]


def verdict_of(opener: Opener, path: Path, kv_cache: str | None, exact_cache: str | None) -> tuple[bool, str]:
    """(passed, in words). opener: makes the engine on a checkpoint, with a capacity and a KV cache.

    kv_cache: the one to be timed; exact_cache: the one in float32, whose every activation can be judged, or None where
    the engine has no such choice. Whatever the engine raises is a failure, told in words.
    """
    checkpoint = quietly_opened(path)
    tokens = judging_tokens(TOKENS, checkpoint.config.vocab, seed=1)
    golden = GoldenRun.of(checkpoint, tokens)
    try:
        engine = opener(checkpoint, TOKENS + STEPS, exact_cache)
        report = judge(golden, Candidate(engine), path.stem, with_speed=False)
        if report.verdict != "conforms":
            first = report.first_divergence
            what = "" if first is None else f": {first.name}, {first.what}"
            return False, f"{report.verdict}{what}"
        found = [_shortcuts(engine, tokens)]
        if kv_cache != exact_cache:
            engine = opener(checkpoint, TOKENS + STEPS, kv_cache)
            found += [_shortcuts(engine, tokens), _cache(engine, golden, kv_cache)]
    except TritgoldError as error:
        return False, str(error)
    wrong = [text for text in found if text]
    levels = sum(level.status == "passed" for level in report.levels.values())
    return not wrong, "; ".join(wrong) or f"conforms on {path.stem}, {levels} levels, {TOKENS} tokens"


def quietly_opened(path: Path) -> Checkpoint:
    """The checkpoint; warnings are for whoever opens it by hand."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TritgoldWarning)
        return open_checkpoint(path)


def _shortcuts(engine: Any, tokens: list[int]) -> str:
    """What is wrong with ``read`` and ``greedy``; empty where they agree with ``prefill`` and ``step``."""
    if callable(getattr(engine, "read", None)):
        engine.reset()
        whole = np.asarray(engine.prefill(tokens))[-1].astype(np.float64)
        engine.reset()
        last = np.asarray(engine.read(tokens)).reshape(-1)
        # The head's sums are in another order; a broken tie would be the same one in both.
        if last.shape != whole.shape or not np.abs(last - whole).max() <= LOGIT_NOISE * np.abs(whole).max():
            return "read(tokens) is not the last row of prefill(tokens)"
    if callable(getattr(engine, "greedy", None)):
        engine.reset()
        by_logits, token = [], tokens[0]
        for _ in range(STEPS):
            by_logits.append(token := int(np.argmax(engine.step(token))))
        engine.reset()
        chosen, token = [], tokens[0]
        for _ in range(STEPS):
            chosen.append(token := int(engine.greedy(token)))
        if chosen != by_logits:
            return f"greedy chose {chosen}, the largest logits are {by_logits}"
    return ""


def _cache(engine: Any, golden: GoldenRun, kv_cache: str | None) -> str:
    """What is wrong with a KV cache: logits against the golden model's with the same scheme, within broken ties."""
    c = golden.checkpoint
    scheme = kv_scheme(str(kv_cache))
    expected = forward(golden.tokens, c.weights, c.config, scheme.cache(c.config, len(golden.tokens)))
    engine.reset()
    found = np.stack([np.asarray(engine.step(token)) for token in golden.tokens])
    off, allowed = relative_rms(expected, found).max(), max(allowed_by_spread(golden), LEAST)
    return "" if off <= allowed else f"KV cache {kv_cache}: logits off by {off:.2g}, ties explain {allowed:.2g}"
