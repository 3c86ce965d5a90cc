"""One forward pass over the next tokens of several sequences: linears see all rows, attention only its own sequence.

The graph is ``model.forward`` with three functions replaced. Every other function works row by row, so a row has the
same bits as alone: in the integer tier because sums of integers are exact, in the float tier because the order of
summation within a row does not depend on other rows. An engine with one activation scale per pass fails here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tritgold.config import ModelConfig, check_tokens
from tritgold.kv_cache.base import KvCache
from tritgold.kv_cache.paged import PagedCache
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic, mode_id
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold.trace_names import token_axis
from tritgold.weights import ModelWeights


@dataclass(frozen=True)
class Part:
    """One sequence's part of the pass. tokens: at least one, to be read after the tokens in its cache.

    wanted: return the logits of the last token. every: return the logits of all tokens. trace: receives what it would
    receive if the sequence were alone.
    """

    tokens: list[int]
    cache: PagedCache
    wanted: bool = True
    trace: Trace | None = None
    every: bool = False

    @property
    def rows(self) -> int:
        """How many of its tokens, counted from the end, have their logits returned."""
        return len(self.tokens) if self.every else int(self.wanted)


def forward_parts(
    parts: Sequence[Part], weights: ModelWeights, config: ModelConfig, arithmetic: Arithmetic = GOLDEN_ARITHMETIC
) -> list[np.ndarray]:
    """Read the tokens of all parts; their caches use one pool. Returns logits float32 [rows, vocab] for each part.

    Raises as ``forward`` does, and, before any compute, ContextError ``no-free-page`` if the pool cannot hold the
    tokens of all parts together. After an error no part has been read, and no trace written.
    """
    if not parts:
        return []
    for part in parts:
        check_tokens(part.tokens, config, part.cache.length)
    together = _Together(parts)
    placed = together.in_place_of(arithmetic)
    ends = np.cumsum([len(part.tokens) for part in parts])
    rows = [row for part, end in zip(parts, ends.tolist(), strict=True) for row in range(end - part.rows, end)]
    scratch = Trace() if any(part.trace is not None for part in parts) else None
    logits = forward(
        [token for part in parts for token in part.tokens],
        weights,
        replace(config, context=max(config.context, int(ends[-1]))),  # forward limits rows; positions are checked above
        together,
        scratch,
        arithmetic=placed,
        rows=rows,
    )
    wanted = np.cumsum([part.rows for part in parts])
    shares = [logits[end - part.rows : end] for part, end in zip(parts, wanted, strict=True)]
    if scratch is not None:
        # The replaced functions change no bit, so the mode is that of the original arithmetic.
        scratch.mode = scratch.mode.removesuffix(mode_id(placed)) + mode_id(arithmetic)
        for n, part in enumerate(parts):
            if part.trace is not None:
                together.hand_out(scratch, n, shares[n], part.trace)
    return shares


class _Together(KvCache):
    """The caches of all parts as one: keys and values of the parts, concatenated. Each part keeps its own positions."""

    def __init__(self, parts: Sequence[Part]) -> None:
        tokens = [len(part.tokens) for part in parts]
        keys = [part.cache.length + n for part, n in zip(parts, tokens, strict=True)]
        super().__init__(parts[0].cache.scheme, parts[0].cache.shape, sum(tokens))
        self.parts, self.starts = parts, [part.cache.length for part in parts]
        self.rows, self.keys = _slices(tokens), _slices(keys)
        self.pairs = (sum(tokens), sum(keys))

    def check_room(self, tokens: int) -> None:
        """Refuse tokens that do not fit a part's cache, or the pool for all parts together."""
        for part in self.parts:
            part.cache.check_room(len(part.tokens))
        missing = sum(part.cache.pages_missing(len(part.tokens)) for part in self.parts)
        self.parts[0].cache.pool.check_free(missing)

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Append each part's rows to its cache; returns the keys and values of all parts, concatenated."""
        read = [part.cache.append(layer, k[r], v[r]) for part, r in zip(self.parts, self.rows, strict=True)]
        return np.concatenate([keys for keys, _ in read]), np.concatenate([values for _, values in read])

    def advance(self, tokens: int) -> None:
        """Advance each part by its own number of tokens."""
        for part in self.parts:
            part.cache.advance(len(part.tokens))

    def in_place_of(self, arithmetic: Arithmetic) -> Arithmetic:
        """The same arithmetic, but each part has its own positions and sees only its own keys."""
        spans = zip(self.starts, self.parts, strict=True)
        positions = np.concatenate([start + np.arange(len(part.tokens)) for start, part in spans])

        def table(_: np.ndarray, *rope: Any) -> Any:
            return arithmetic.rotation_table(positions, *rope)

        def softmax_weights(q: np.ndarray, k: np.ndarray, _: int, **window: int) -> np.ndarray:
            weights = np.zeros((q.shape[1], *self.pairs), np.float32)
            for start, rows, keys in zip(self.starts, self.rows, self.keys, strict=True):
                weights[:, rows, keys] = arithmetic.softmax_weights(q[rows], k[keys], start, **window)
            return weights

        def mix_values(weights: np.ndarray, v: np.ndarray) -> np.ndarray:
            pairs = zip(self.rows, self.keys, strict=True)
            return np.concatenate([arithmetic.mix_values(weights[:, rows, keys], v[keys]) for rows, keys in pairs])

        return replace(arithmetic, rotation_table=table, softmax_weights=softmax_weights, mix_values=mix_values)

    def hand_out(self, scratch: Trace, n: int, logits: np.ndarray, trace: Trace) -> None:
        """Copy part ``n``'s rows from the trace of the whole pass to ``trace``."""
        rows, keys = self.rows[n], self.keys[n]
        for name, array in scratch.arrays.items():
            if name == "logits":
                trace.record(name, logits.copy())
            else:
                trace.record(name, (array[:, rows, keys] if token_axis(name) else array[rows]).copy())
        trace.tokens += self.parts[n].tokens
        trace.mode, trace.engine = scratch.mode, trace.engine or scratch.engine


def _slices(lengths: Sequence[int]) -> list[slice]:
    """Consecutive slices of these lengths, from 0."""
    ends = np.cumsum(lengths).tolist()
    return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
