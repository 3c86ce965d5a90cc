"""Block diffusion written a second time, plainly: without the engine's cache, options of reading, or code.

``plain`` forwards the whole text for every pass. The three others are what the engines' own programs do, approximations
and defects included, with keys and values in a dictionary by position.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.config import ModelConfig
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import Diffusion
from tritgold.decode.diffusion_record import Diffused
from tritgold.decode.unmasking import Thresholds
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.kv_cache.base import KvCache, Sizes
from tritgold.model import forward

BLOCK, MASK, CONTEXT = 8, 258, 64  # <eot> stands for a mask


@cache
def small_model(seed: int) -> Checkpoint:
    """Two layers: what a mask leaves in the cache shows in the keys of the second."""
    with tempfile.TemporaryDirectory() as folder:
        shape = Shape(seed=seed, hidden=16, inter=16, layers=2, heads=2, kv_heads=1, context=CONTEXT)
        write_seeded_model(Path(folder), shape)
        opened = open_checkpoint(Path(folder))
    return replace(opened, config=replace(opened.config, mask=MASK, block=BLOCK, eos=()))


def prompt_of(seed: int, length: int) -> list[int]:
    """Bytes that look random."""
    return [(seed * 37 + n * n * 13 + n * 7) % 256 for n in range(length)]


def engine(opened: Checkpoint, prompt: list[int], max_tokens: int, options: Diffusion) -> Diffused:
    """The engine under test, on the golden model."""
    model = reference_block_model(opened.weights, opened.config, options, len(prompt) + max_tokens)
    return block_diffusion(prompt, opened.config, model, max_tokens, options)


def greedy_rows(logits: np.ndarray, mask: int) -> tuple[list[int], list[float]]:
    """Of each row the likeliest token that is not the mask, and its probability, by NumPy's own exp."""
    logits = logits.astype(np.float64)
    logits[:, mask] = -np.inf
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.argmax(logits, axis=1).tolist(), (powers.max(axis=1) / powers.sum(axis=1)).tolist()


def accepted(sure: dict[int, float], threshold: float, inclusive: bool) -> list[int]:
    """Positions at a threshold, the likeliest in any case."""
    best = max(sure, key=lambda at: sure[at])
    return [at for at in sure if at == best or sure[at] > threshold or (inclusive and sure[at] == threshold)]


def plain(opened: Checkpoint, prompt: list[int], max_tokens: int, o: Diffusion) -> tuple[list[int], int]:
    """Tokens and passes, by forwarding the whole text each time."""
    config, block, mask, n = opened.config, opened.config.block or 0, opened.config.mask or 0, len(prompt)
    assert isinstance(o.rule, Thresholds)
    sub_block, text, passes, spent = o.sub_block or block, list(prompt), 0, 0
    sees = {"block": block, "causal": 1, "full": CONTEXT}[o.attention]
    best: dict[int, tuple[float, int]] = {}
    steps: dict[int, int] = {}  # passes by sub-block

    def rows() -> tuple[list[int], list[float]]:
        return greedy_rows(forward(text, opened.weights, config, block=sees), mask)

    def output() -> list[int] | None:
        new = text[n : n + max_tokens]
        ends = [k for k, token in enumerate(new, start=1) if token in config.eos]
        new = new[: ends[0]] if ends else new
        return None if mask in new or not (ends or len(new) == max_tokens) else new

    start = n // block * block if o.attention == "block" else n
    if start == n and o.attention != "full":
        text.append(rows()[0][-1])
        start += o.commit == "merged"
    if o.attention == "full":
        text += [mask] * (-(-max_tokens // block) * block)
    while (found := output()) is None:
        text += [mask] * (start + block - len(text))
        masked = [at for at in range(start, start + block) if text[at] == mask]
        if not masked:
            start += block
            best, steps, spent = {}, {}, 0
            if o.commit == "pass":
                passes += 1
                text.append(rows()[0][-1])
            continue
        group = (masked[0] - start) // sub_block
        masked = [at for at in masked if (at - start) // sub_block == group]
        tokens, sure = rows()
        passes, spent = passes + 1, spent + 1
        step = steps[group] = steps.get(group, -1) + 1
        for at in masked:
            at_row = at - o.shift
            if at not in best or sure[at_row] > best[at][0]:
                best[at] = sure[at_row], tokens[at_row]
        threshold = o.rule.values[min(step, len(o.rule.values) - 1)]
        for at in accepted({at: sure[at - o.shift] for at in masked}, threshold, o.rule.inclusive):
            text[at] = tokens[at - o.shift]
        if spent == o.max_passes:
            for at in range(start, start + block):
                text[at] = best[at][1] if text[at] == mask else text[at]
    return found, passes


class Rows(KvCache):
    """Keys and values in a dictionary, by layer and position; a pass sees every position below ``end``."""

    def __init__(self) -> None:
        super().__init__("f32", Sizes(1, 1, 1), CONTEXT)  # it stores whatever comes
        self.stored: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        self.end = 0

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        for n in range(k.shape[0]):
            self.stored[layer, self.length + n] = k[n].copy(), v[n].copy()
        seen = [self.stored[layer, at] for at in range(self.end)]
        return np.stack([k for k, _ in seen]), np.stack([v for _, v in seen])

    def read(
        self, opened: Checkpoint, tokens: list[int], start: int, end: int, sees: int
    ) -> tuple[list[int], list[float]]:
        """Likeliest tokens and probabilities of all that is read."""
        self.length, self.end = start, end
        return greedy_rows(forward(tokens, opened.weights, opened.config, self, block=sees), MASK)


def v2_dual(opened: Checkpoint, prompt: list[int], blocks: int, threshold: float, sub_block: int) -> list[int]:
    """The released ``generate`` with its sub-block cache; prompts of more than a block; blocks as it counts them."""
    text, rows, b = list(prompt), Rows(), BLOCK
    start = len(prompt) // b * b
    tokens, _ = rows.read(opened, text[:start], 0, start, b)
    if start == len(text):
        text.append(tokens[-1])
    for _ in range(blocks):
        text += [MASK] * (start + b - len(text))
        whole = True
        for j in range(start, start + b, sub_block):
            while MASK in text[j : j + sub_block]:
                if whole or text[j] == MASK:
                    tokens, sure = rows.read(opened, text[start:], start, start + b, b)
                    tokens, sure = [tokens[0], *tokens[:-1]], [sure[0], *sure[:-1]]  # shift, then slice
                    tokens, sure = tokens[j - start :][:sub_block], sure[j - start :][:sub_block]
                    whole = False
                else:
                    tokens, sure = rows.read(opened, text[j : j + sub_block], j, start + b, b)
                    tokens, sure = [tokens[0], *tokens[:-1]], [sure[0], *sure[:-1]]
                candidates = {k: sure[k] for k in range(sub_block) if text[j + k] == MASK}
                for k in accepted(candidates, threshold, False):
                    text[j + k] = tokens[k]
        tokens, _ = rows.read(opened, text[start:], start, start + b, b)
        text.append(tokens[-1])
        start += b
    return text[len(prompt) :]


# What a rule takes of the masked positions: how sure each is, and how many passes were made over the block before.
Choice = Callable[[dict[int, float], int], list[int]]


def by_threshold(threshold: float) -> Choice:
    """Fast-dLLM v1's: a probability of the threshold is enough."""
    return lambda sure, _: accepted(sure, threshold, True)


def by_factor(factor: float, accepts_last: bool) -> Choice:
    """The surest, then each next one as long as it reaches its own threshold; with the defect, the last in any case."""

    def choose(sure: dict[int, float], _: int) -> list[int]:
        order = sorted(sure, key=lambda at: -sure[at])
        taken = 1
        while taken < len(order) and sure[order[taken]] >= 1 - factor / (taken + 2):
            taken += 1
        return order[: taken + (accepts_last and taken == len(order) - 1)]

    return choose


def by_steps(steps: int) -> Choice:
    """Equal shares of what is left over the passes that are left."""

    def choose(sure: dict[int, float], step: int) -> list[int]:
        share = -(-len(sure) // max(1, steps - step))
        return sorted(sure, key=lambda at: -sure[at])[:share]

    return choose


def v1(opened: Checkpoint, prompt: list[int], blocks: int, choose: Choice, dual: bool, shift: bool) -> list[int]:
    """Fast-dLLM v1 with its prefix or dual cache: LLaDA's loop, or with the shift Dream's."""
    n, b = len(prompt), BLOCK
    text, rows = prompt + [MASK] * (blocks * b), Rows()
    for start in range(n, len(text), b):
        tokens, sure = rows.read(opened, text, 0, len(text), CONTEXT)
        step = 1
        if shift:
            text[start] = tokens[start - 1]
        else:
            for at in choose({at: sure[at] for at in range(start, start + b)}, 0):
                text[at] = tokens[at]
        while MASK in text[start : start + b]:
            stop = start + b if dual else len(text)
            tokens, sure = rows.read(opened, text[start:stop], start, len(text), CONTEXT)
            masked = [at for at in range(start, start + b) if text[at] == MASK]
            for at in choose({at: sure[at - shift - start] for at in masked}, step):
                text[at] = tokens[at - shift - start]
            step += 1
    return text[n:]


def server(opened: Checkpoint, prompt: list[int], blocks: int, thresholds: list[float], passes: int) -> list[int]:
    """The causal server's iterative mode as it is, D1 to D4 included; one pass and threshold 0 is its greedy mode."""
    rows, b, at = Rows(), BLOCK, len(prompt)
    tokens, _ = rows.read(opened, prompt, 0, at, 1)
    out = [tokens[-1]]
    for _ in range(blocks):
        block, best, stable = [MASK] * b, [(0.0, MASK)] * b, 0
        for number in range(passes):
            if MASK not in block:
                break
            r = min(stable, block.index(MASK))
            fed = [out[-1] if r == 0 else block[r - 1], *block[r:]]
            tokens, sure = rows.read(opened, fed, at + r - 1, at + b, 1)
            masked = [i for i in range(b) if block[i] == MASK]
            for i in masked:
                best[i] = max(best[i], (sure[i - r], tokens[i - r]), key=lambda found: found[0])
            threshold = thresholds[min(number, len(thresholds) - 1)]
            for i in accepted({i: sure[i - r] for i in masked}, threshold, False):
                block[i] = tokens[i - r]
            stable = block.index(MASK) if MASK in block else b
        out += [best[i][1] if block[i] == MASK else block[i] for i in range(b)]
        at += b
    return out


def stored(cache: KvCache, config: ModelConfig) -> list[bytes]:
    """Keys and values of each layer up to its length, read by appending nothing."""
    nothing = np.zeros((0, config.kv_heads, config.head_dim), np.float32)
    return [array.tobytes() for layer in range(config.layers) for array in cache.append(layer, nothing, nothing)]
