"""Judges an engine before it is timed, with the options that will be timed, on a model of the same family.

Besides the levels of ``tritgold check``: a KV cache of fewer bits, against the golden model with the same scheme;
``read``, against the last row of ``prefill``; ``greedy``, against the largest logit; and code that only some rows run
(``precheck_rows``), if these rows will be timed. The judge's levels under a policy such as ``kv-bf16`` are not used for
the caches: each cache would take eight more passes of the golden model, with matrices of the timed size.
"""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import MissingDependencyError, TritgoldError, TritgoldWarning
from tritgold.golden import embedded_model
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.model import forward
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.bench import precheck_rows
from tritgold_conformance.bench.plan import SERVED
from tritgold_conformance.bench.precheck_rows import Allowed, Diffuse, off_by
from tritgold_conformance.bench.rows import greedy_step
from tritgold_conformance.comparing.logits import LOGIT_NOISE
from tritgold_conformance.comparing.tie_sensitivity import measured_spread
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.golden.run import GoldenRun, judging_tokens
from tritgold_conformance.judging.check import check

TOKENS, STEPS = 8, 8
# Least allowed error, relative rms: a stored value that rounds the other way, if no code is near a tie. A logit: 8 x.
LEAST = 1e-3
_AFTER_PROMPTS = {"decode", "greedy", "prefill", "first-token", "kv", "serve"}  # rows of more than TOKENS tokens
_NO_ENGINE = ("engine-unknown", "engine-load", "engine-protocol")
Opener = Callable[[Checkpoint, int, str | None], object]


class Judge:
    """The verdicts on one file. opener: makes the engine from a checkpoint, a capacity and a KV cache.

    exact_cache: the KV cache in float32, with which every activation is judged; None if the engine has no choice.
    diffuse: the engine's block diffusion, as ``engines.xla.diffuse``, or None.
    """

    def __init__(self, opener: Opener, path: Path, exact_cache: str | None, diffuse: Diffuse | None = None) -> None:
        self._opener, self._exact, self._diffuse, self._name = opener, exact_cache, diffuse, path.stem
        checkpoint = quietly_opened(path)
        self._golden = GoldenRun.of(checkpoint, judging_tokens(TOKENS, checkpoint.config.vocab, seed=1))
        moved, largest = measured_spread(self._golden)
        self._allowed = Allowed(max(moved, LEAST), max(largest, 8 * LEAST))
        self._whole: tuple[bool, str] | None = None  # what every cache shares, judged once

    def verdict(self, kv_cache: str | None, rows: Sequence[tuple[str, dict[str, Any]]] = ()) -> tuple[bool, str]:
        """(passed, description) for a KV cache. An engine that raises does not pass; the description is its error.

        rows: the rows that will be timed, once for each case. Raises EngineError and MissingDependencyError if the
        engine cannot be loaded.
        """
        try:
            self._whole = self._whole or self._all_levels()
            passed, text = self._whole
            if passed:
                wrong, seen = self._one_cache(kv_cache, rows)
                return not wrong, wrong or text + seen
        except TritgoldError as error:
            if isinstance(error, MissingDependencyError) or error.kind in _NO_ENGINE:
                raise
            return False, str(error)
        except Exception as error:  # the engine is called directly, as when it is timed, without ``EngineUnderTest``
            return False, f"{type(error).__name__}: {error}"
        return passed, text

    def _one_cache(self, kv_cache: str | None, rows: Sequence[tuple[str, dict[str, Any]]]) -> tuple[str, str]:
        """What is wrong (empty: nothing), and what was checked, in words."""
        checkpoint, named, seen = self._golden.checkpoint, {row for row, _ in rows}, ""
        if kv_cache == self._exact and not named:
            return "", seen
        engine = self._open(kv_cache)
        if kv_cache != self._exact:
            if wrong := _shortcuts(engine, self._golden.tokens) or self._wrong_cache(engine, kv_cache):
                return wrong, seen
            seen += f"; KV cache {kv_cache} as the golden one"
        if named & _AFTER_PROMPTS:
            lengths = [case["tokens"] for row, case in rows if row in ("prefill", "first-token")]
            if wrong := precheck_rows.wrong_prompts(engine, checkpoint, kv_cache, self._allowed, lengths):
                return wrong, seen
            seen += f"; prompt of {precheck_rows.long_length(checkpoint.config.context)} tokens"
        if named & {"batch", "serve"} and callable(getattr(engine, "fork", None)):
            timed = (case.get("sequences", SERVED) for row, case in rows if row in ("batch", "serve"))
            most = max(len(precheck_rows.PROMPTS), *timed)
            if wrong := precheck_rows.wrong_batch(engine, checkpoint, self._allowed, most):
                return wrong, seen
            seen += f"; batch of {most} as each alone"
        cases = [case for row, case in rows if row in ("block-diffusion", "block-pass")]
        if cases and self._diffuse is not None:
            if wrong := self._wrong_blocks(self._diffuse, kv_cache, cases):
                return wrong, seen
            seen += f"; blocks as the golden decoder's on {precheck_rows.BLOCK_MODEL}"
        return "", seen

    def _open(self, kv_cache: str | None) -> Any:
        context = self._golden.checkpoint.config.context
        room = max(TOKENS + STEPS, min(context, precheck_rows.long_length(context) + precheck_rows.STEPS))
        return self._opener(self._golden.checkpoint, room, kv_cache)

    def _all_levels(self) -> tuple[bool, str]:
        engine = self._open(self._exact)
        report, _ = check(self._golden, EngineUnderTest(engine), self._name, timed=False)
        if report.verdict != "conforms":
            first = report.first_divergence
            return False, report.verdict + ("" if first is None else f": {first.name}, {first.what}")
        levels = sum(level.status == "passed" for level in report.levels.values())
        wrong = _shortcuts(engine, self._golden.tokens)
        return not wrong, wrong or f"conforms on {self._name}, {levels} levels, {TOKENS} tokens"

    def _wrong_cache(self, engine: Any, kv_cache: str | None) -> str:
        """What is wrong with the logits, by the golden model with the same KV cache; broken ties are allowed for."""
        golden, c = self._golden, self._golden.checkpoint
        cache = kv_scheme(str(kv_cache)).cache(c.config, len(golden.tokens))
        expected = forward(golden.tokens, c.weights, c.config, cache)
        engine.reset()
        wrong = off_by(expected, np.stack([np.asarray(engine.step(t)) for t in golden.tokens]), self._allowed)
        return wrong and f"KV cache {kv_cache}: {wrong}"

    def _wrong_blocks(self, diffuse: Diffuse, kv_cache: str | None, cases: list[dict[str, Any]]) -> str:
        with embedded_model(precheck_rows.BLOCK_MODEL) as path:
            checkpoint = quietly_opened(path)
            engine = self._opener(checkpoint, precheck_rows.BLOCK_ROOM, kv_cache)
            prompt = Tokenizer(path / "tokenizer.json").encode(precheck_rows.BLOCK_TEXT)
            return precheck_rows.wrong_blocks(engine, checkpoint, prompt, kv_cache, diffuse, cases)


def quietly_opened(path: Path) -> Checkpoint:
    """The checkpoint, opened without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TritgoldWarning)
        return open_checkpoint(path)


def _shortcuts(engine: Any, tokens: list[int]) -> str:
    """What is wrong with ``read`` and ``greedy``; empty if they agree with ``prefill`` and ``step``."""
    if callable(getattr(engine, "read", None)):
        engine.reset()
        whole = np.asarray(engine.prefill(tokens))[-1].astype(np.float64)
        engine.reset()
        last = np.asarray(engine.read(tokens)).reshape(-1)
        # The head's sums may be in another order; a tie that is broken in one is broken in the other too.
        if last.shape != whole.shape or not np.abs(last - whole).max() <= LOGIT_NOISE * np.abs(whole).max():
            return "read(tokens) is not the last row of prefill(tokens)"
    if callable(getattr(engine, "greedy", None)):
        by_logits = _chain(engine, lambda token: int(np.argmax(engine.step(token))), tokens[0])
        chosen = _chain(engine, greedy_step(engine), tokens[0])
        if chosen != by_logits:
            return f"greedy chose {chosen}, the largest logits are {by_logits}"
    return ""


def _chain(engine: Any, following: Callable[[int], int], token: int) -> list[int]:
    """STEPS tokens after ``token``, each chosen from the one before."""
    engine.reset()
    found = [token]
    for _ in range(STEPS):
        found.append(following(found[-1]))
    return found[1:]
