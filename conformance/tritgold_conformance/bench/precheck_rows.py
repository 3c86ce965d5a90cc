"""Checks of code that timed rows run and a text of eight tokens does not: prompts of several chunks, attention over
several parts of a cache, batches, whole blocks. Each is compared with the golden model, or with a path that was.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import Diffusion
from tritgold.decode.diffusion_presets import preset
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.model import forward
from tritgold_conformance.comparing.tie_sensitivity import relative_largest, relative_rms
from tritgold_conformance.golden.run import judging_tokens

LONG = 300  # tokens: three chunks of the XLA engine, and three parts of its attention
STEPS = 2  # after each prompt
BLOCK_MODEL = "kjv-dlm"
BLOCK_TOKENS, BLOCK_ROOM = 40, 128  # after a prompt: two blocks of 32, wherever they begin
# After this text no rounding tie decides a token in any timed preset; after most texts some do.
BLOCK_TEXT = "The word of the LORD came unto me, saying, Son of man, prophesy against"
LONGEST, PROMPTS = 70, (5, 3, 7)  # lengths of the sequences of a batch: the first, and the others in turn
COMPARED = 4  # sequences of a batch that are also run alone
Diffuse = Callable[[Any, list[int], int, dict[str, Any]], tuple[list[int], int]]


class Allowed(NamedTuple):
    """How far logits may be off, relative to their root mean square: rms over a position, and a single logit."""

    rms: float
    largest: float


def off_by(expected: np.ndarray, found: np.ndarray, allowed: Allowed) -> str:
    """How far logits [tokens, vocab] are off, in words, if it is more than is allowed; otherwise empty."""
    if expected.shape != found.shape:
        return f"logits {list(found.shape)}, expected {list(expected.shape)}"
    rms, largest = relative_rms(expected, found).max(), relative_largest(expected, found).max()
    for what, off, most in (("logits", rms, allowed.rms), ("a logit", largest, allowed.largest)):
        if not off <= most:
            return f"{what} off by {off:.2g}, ties explain {most:.2g}"
    return ""


def long_length(context: int) -> int:
    """Tokens of the long prompt, for a model of so many positions."""
    return max(1, min(LONG, context - STEPS))


def wrong_prompts(
    engine: Any, checkpoint: Checkpoint, kv_cache: str | None, allowed: Allowed, lengths: Sequence[int] = ()
) -> str:
    """A prompt of ``long_length`` tokens and the steps after it, and its beginnings, against the golden model with the
    same KV cache. lengths: of prompts that will be timed; only those below ``long_length`` are checked.
    """
    c = checkpoint.config
    longest, steps = long_length(c.context), STEPS if callable(getattr(engine, "step", None)) else 0
    prompts = sorted({*(n for n in lengths if n < longest), longest})
    tokens = judging_tokens(longest + steps, c.vocab, seed=4)
    rows = [n - 1 for n in prompts] + list(range(longest, longest + steps))
    cache = kv_scheme(kv_cache or "f32").cache(c, len(tokens))
    expected = forward(tokens, checkpoint.weights, c, cache, rows=rows)
    found = [_last_logits(engine, tokens[:n]) for n in prompts]
    found += [np.asarray(engine.step(token)) for token in tokens[longest:]]
    for row, *pair in zip(rows, expected, found, strict=True):
        one, other = (logits.reshape(1, -1) for logits in pair)
        # Twice the spread that was measured on a few tokens.
        if wrong := off_by(one, other, Allowed(2 * allowed.rms, 2 * allowed.largest)):
            return f"at the end of {row + 1} tokens: {wrong}"
    return ""


def _last_logits(engine: Any, prompt: list[int]) -> np.ndarray:
    engine.reset()
    if callable(getattr(engine, "read", None)):
        return np.asarray(engine.read(prompt))
    return np.asarray(engine.prefill(prompt))[-1]


def wrong_batch(engine: Any, checkpoint: Checkpoint, allowed: Allowed, sequences: int) -> str:
    """A batch of sequences of several lengths, some compared with the same sequence run alone. engine: has ``fork``."""
    vocab = checkpoint.config.vocab
    longest = min(LONGEST, checkpoint.config.context - STEPS)
    lengths = [longest, *(PROMPTS[n % len(PROMPTS)] for n in range(sequences - 1))]
    prompts = [judging_tokens(length, vocab, seed=50 + n) for n, length in enumerate(lengths)]
    following = [judging_tokens(STEPS, vocab, seed=500 + n) for n in range(sequences)]
    together = engine.fork(sequences, capacity=longest + STEPS)
    for place, prompt in enumerate(prompts):
        together.read(prompt, sequence=place)
    found = np.stack([np.asarray(together.step_all([each[n] for each in following])) for n in range(STEPS)], axis=1)
    for place in sorted({round(n) for n in np.linspace(0, sequences - 1, COMPARED)}):
        engine.reset()
        engine.read(prompts[place])
        alone = np.stack([np.asarray(engine.step(token)) for token in following[place]])
        if wrong := off_by(alone, found[place], allowed):
            return f"sequence {place} of a batch of {sequences}: {wrong}"
    return ""


def wrong_blocks(
    engine: Any,
    checkpoint: Checkpoint,
    prompt: list[int],
    kv_cache: str | None,
    diffuse: Diffuse,
    cases: Sequence[dict[str, Any]],
) -> str:
    """Texts of block diffusion against the golden decoder with the same KV cache: every token, and how many passes.

    engine: of BLOCK_ROOM positions. checkpoint, prompt: BLOCK_MODEL, which was trained for block diffusion, and
    BLOCK_TEXT; with random weights a broken tie would change the text.
    """
    c = checkpoint.config
    for case in one_of_each(cases):
        options = golden_options(case, c.vocab)
        tokens = judged_tokens(case)
        cache = kv_scheme(kv_cache or "f32").cache(c, BLOCK_ROOM)
        model = reference_block_model(checkpoint.weights, c, options, len(prompt) + tokens, cache)
        golden = block_diffusion(prompt, c, model, tokens, options)
        found, passes = diffuse(engine, prompt, tokens, case)
        if list(found) != golden.tokens:
            at = next((n for n, (a, b) in enumerate(zip(found, golden.tokens, strict=False)) if a != b), len(found))
            return f"block diffusion {case}: token {at} is not the golden decoder's"
        if passes != len(golden.passes):
            return f"block diffusion {case}: {passes} passes, the golden decoder needs {len(golden.passes)}"
    return ""


def one_of_each(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each preset, the case with the fewest passes: the others differ only in a number.

    >>> one_of_each([{"preset": "adaptive", "threshold": "0.9"}, {"preset": "adaptive", "threshold": "0.3"}])
    [{'preset': 'adaptive', 'threshold': '0.3'}]
    """
    quickest: dict[str | None, dict[str, Any]] = {}
    for case in sorted(cases, key=lambda case: float(case["threshold"] if "threshold" in case else case["passes"])):
        quickest.setdefault(case.get("preset"), case)
    return list(quickest.values())


def judged_tokens(case: dict[str, Any]) -> int:
    """Tokens of the text that is compared for a case: into a second block of 32; few where a pass decides one token."""
    return min(BLOCK_TOKENS, case.get("tokens", BLOCK_TOKENS // 2))


def golden_options(case: dict[str, Any], vocab: int) -> Diffusion:
    """The golden decoder's options for a case of the rows ``block-diffusion`` and ``block-pass``."""
    given = {"block": case["block"], "mask": vocab - 1} if "block" in case else {}
    if "passes" not in case:
        return preset(case["preset"], float(case["threshold"]), **given)
    return preset("iterative", 1.0, max_passes=case["passes"], **given)
