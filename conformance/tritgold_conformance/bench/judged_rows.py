"""What the timed rows run and eight tokens do not: a prompt of several chunks, attention over several parts of a
cache, sequences side by side, whole blocks. Each is held to the golden model, or to a path that has been.
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
from tritgold_conformance.golden import judging_tokens
from tritgold_conformance.spread import relative_largest, relative_rms

LONG = 300  # tokens: three chunks of the XLA engine, and three parts of its attention
STEPS = 2  # behind each prompt
BLOCK_MODEL = "kjv-dlm"
BLOCK_TOKENS = 24  # behind 16 of a prompt: the end of one block and a part of the next
PROMPTS = (5, 3, 7)  # tokens of the sequences of a batch
Diffuse = Callable[[Any, list[int], int, dict[str, Any]], tuple[list[int], int]]


class Allowed(NamedTuple):
    """How far logits may be off, relative to their root mean square: all of a position's together, and one alone."""

    rms: float
    largest: float


def off_by(expected: np.ndarray, found: np.ndarray, allowed: Allowed) -> str:
    """In words, by how much logits [tokens, vocab] are further off than is allowed; empty where they are not."""
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


def wrong_long_prompt(engine: Any, checkpoint: Checkpoint, kv_cache: str | None, allowed: Allowed) -> str:
    """A prompt of ``long_length`` tokens and the steps behind it, against the golden model with the same KV cache."""
    c = checkpoint.config
    prompt, steps = long_length(c.context), STEPS if callable(getattr(engine, "step", None)) else 0
    tokens = judging_tokens(prompt + steps, c.vocab, seed=4)
    scheme = kv_scheme(kv_cache or "f32")
    expected = forward(tokens, checkpoint.weights, c, scheme.cache(c, len(tokens)))[prompt - 1 :]
    engine.reset()
    read = callable(getattr(engine, "read", None))
    last = engine.read(tokens[:prompt]) if read else np.asarray(engine.prefill(tokens[:prompt]))[-1]
    found = np.stack([np.asarray(last).reshape(-1), *(np.asarray(engine.step(token)) for token in tokens[prompt:])])
    wrong = off_by(expected, found, Allowed(2 * allowed.rms, 2 * allowed.largest))  # measured on a few tokens
    return wrong and f"behind a prompt of {prompt} tokens: {wrong}"


def wrong_batch(engine: Any, checkpoint: Checkpoint, allowed: Allowed) -> str:
    """Sequences of several lengths side by side, each against itself alone. Empty for an engine without ``beside``."""
    if not callable(getattr(engine, "beside", None)):
        return ""
    vocab = checkpoint.config.vocab
    prompts = [judging_tokens(n, vocab, seed=5 + n) for n in PROMPTS]
    following = [judging_tokens(STEPS, vocab, seed=20 + n) for n in PROMPTS]
    together = engine.beside(len(prompts), capacity=max(PROMPTS) + STEPS)
    for place, prompt in enumerate(prompts):
        together.read(prompt, sequence=place)
    found = np.stack([np.asarray(together.step_all([each[n] for each in following])) for n in range(STEPS)], axis=1)
    for place, (prompt, tokens) in enumerate(zip(prompts, following, strict=True)):
        engine.reset()
        engine.read(prompt)
        alone = np.stack([np.asarray(engine.step(token)) for token in tokens])
        if wrong := off_by(alone, found[place], allowed):
            return f"sequence {place} of a batch of {len(prompts)}: {wrong}"
    return ""


def wrong_blocks(engine: Any, checkpoint: Checkpoint, diffuse: Diffuse, cases: Sequence[dict[str, Any]]) -> str:
    """Texts of block diffusion against the golden decoder: every token, and how many passes it took.

    engine: with a KV cache in float32. checkpoint: of BLOCK_MODEL, which was trained for it; random weights are so
    unsure that a broken tie changes their text.
    """
    c = checkpoint.config
    prompt = judging_tokens(16, c.vocab - 1, seed=2)
    for case in one_of_each(cases):
        options = golden_options(case, c.vocab)
        tokens = min(BLOCK_TOKENS, case["tokens"], c.context - len(prompt))
        model = reference_block_model(checkpoint.weights, c, options, len(prompt) + tokens)
        golden = block_diffusion(prompt, c, model, tokens, options)
        found, passes = diffuse(engine, prompt, tokens, case)
        if list(found) != golden.tokens:
            at = next((n for n, (a, b) in enumerate(zip(found, golden.tokens, strict=False)) if a != b), len(found))
            return f"block diffusion {case}: token {at} is not the golden decoder's"
        if passes != len(golden.passes):
            return f"block diffusion {case}: {passes} passes, the golden decoder needs {len(golden.passes)}"
    return ""


def one_of_each(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each way the case with the fewest passes: the others differ in a number alone.

    >>> one_of_each([{"preset": "adaptive", "threshold": "0.9"}, {"preset": "adaptive", "threshold": "0.3"}])
    [{'preset': 'adaptive', 'threshold': '0.3'}]
    """
    ways = dict.fromkeys(case.get("preset") for case in cases)
    quickest = {way: [case for case in cases if case.get("preset") == way] for way in ways}
    return [min(same, key=_number) for same in quickest.values()]


def _number(case: dict[str, Any]) -> float:
    return float(case["threshold"] if "threshold" in case else case["passes"])


def golden_options(case: dict[str, Any], vocab: int) -> Diffusion:
    """What a case of the row ``block-diffusion`` asks of the golden decoder."""
    if "passes" not in case:
        return preset(case["preset"], float(case["threshold"]))
    return preset("iterative", 1.0, block=case["block"], max_passes=case["passes"], mask=vocab - 1)
