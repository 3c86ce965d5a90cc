"""Greedy decoding as in a batch server with known defects, D8 to D10 of its scheduler and its prefix cache.

The server reads a prompt in chunks and may find its beginning in the cache, from an earlier request. If done correctly,
neither changes a token. Here everything is recomputed for every token, which is slow but simple.
"""

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum

import numpy as np

from tritgold.config import ModelConfig, check_tokens
from tritgold.decode.autoregressive import check_budget, possible
from tritgold.errors import ConfigError, ContextError
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.layers.rotary import rotation_table
from tritgold.model import forward
from tritgold.option_values import is_count
from tritgold.weights import ModelWeights


class ServerDefect(StrEnum):
    """Known defects of such servers."""

    CHUNK_TOKENS = "chunk-tokens"  # D8: each chunk of the prompt gives a token, not only the last chunk
    POSITION_JUMPS = "position-jumps"  # D8: positions advance by 2 per generated token, by 1 per token of a chunk
    REPEATED_TOKEN = "repeated-token"  # D9: if the whole prompt is cached, its last token is read again after it
    MISSING_KEY = "missing-key"  # D10: the last cached token was generated but never read, so it has no key


def served(
    prompt: list[int],
    weights: ModelWeights,
    config: ModelConfig,
    max_tokens: int,
    defects: Collection[ServerDefect] = (),
    chunk: int = 128,
    cached: int = 0,
) -> list[int]:
    """The generated tokens, up to the first end of sequence or ``max_tokens``. chunk: prompt tokens per pass.

    cached: number of tokens at the prompt's beginning that are in the cache; an earlier request generated the last one.

    Raises ContextError, before any compute, for a prompt that cannot be read, for ``max_tokens`` (``max-tokens``),
    ``chunk`` (``chunk``) or ``cached`` (``cached``) out of range, and if the last position may be outside the
    context (``context-length``); ConfigError (``server-defect``) for an unknown defect.
    """
    prompt = check_tokens(prompt, config).tolist()
    check_budget(max_tokens)
    n = len(prompt)
    for name, got, usable, expected in (
        ("chunk", chunk, is_count(chunk, 1), "1 or more"),
        ("cached", cached, is_count(cached, 0, n), f"0 to {n}, the tokens of the prompt"),
    ):
        if not usable:
            raise ContextError("is not usable", kind=name, thing=name, got=repr(got), expected=expected)
    for defect in defects:
        if defect not in tuple(ServerDefect):
            expected = ", ".join(ServerDefect)
            raise ConfigError("no such defect", kind="server-defect", got=repr(defect), expected=expected)
    jumps = ServerDefect.POSITION_JUMPS in defects
    last = n + (2 * max_tokens + n // chunk if jumps else max_tokens)
    if last > config.context:
        raise ContextError(
            "the text does not fit", kind="context-length", got=last, expected=f"at most {config.context}"
        )

    read = list(enumerate(prompt[:cached]))  # (position, token) of everything that has a key
    if cached and ServerDefect.MISSING_KEY in defects:
        read.pop()
    position = cached
    if cached == n and ServerDefect.REPEATED_TOKEN not in defects:
        read, position = list(enumerate(prompt[:-1])), n - 1  # read the last one again for its logits
    chunks = [prompt[first : first + chunk] for first in range(position, n, chunk)]
    token, generated = prompt[-1], list[int]()
    while len(generated) < max_tokens and not (generated and token in config.eos):
        prefilling = bool(chunks)
        now = chunks.pop(0) if prefilling else [token]
        read += enumerate(now, start=position)
        position += len(now) if prefilling or not jumps else 0
        if not chunks or ServerDefect.CHUNK_TOKENS in defects:
            token = _next(read, weights, config)
            generated.append(token)
            position += jumps * (1 if chunks else 2)
    return generated


def _next(read: list[tuple[int, int]], weights: ModelWeights, config: ModelConfig) -> int:
    positions = np.array([position for position, _ in read])
    placed = replace(GOLDEN_ARITHMETIC, rotation_table=lambda _, *rope: rotation_table(positions, *rope))
    logits = forward([token for _, token in read], weights, config, last_only=True, arithmetic=placed)
    return int(np.argmax(possible(logits[-1], config)))
