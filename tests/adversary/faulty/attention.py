"""Attention that is wrong: masks, groups, scales, softmax."""

from collections.abc import Callable

import numpy as np
from base_engine import Engine, F
from registry import faulty, made

KIND = "attention"
Mask = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _mask(what: Mask) -> Callable[[Engine, int, int, int], np.ndarray]:
    def visible(self: Engine, n: int, rows: int, columns: int) -> np.ndarray:
        seen = what((columns - rows + np.arange(rows))[:, None], np.arange(columns)[None])
        return seen | (np.arange(columns) == (columns - rows + np.arange(rows))[:, None])

    return visible


for _name, _what, _seen in [
    ("NoMask", "no causal mask", lambda row, column: column >= 0),
    ("MaskOneAhead", "the mask shows one token ahead", lambda row, column: column <= row + 1),
    ("MaskWithoutPrevious", "a token does not see the one before it", lambda row, column: column < row - 1),
    ("MaskForgetsFirst", "position 0 is not seen from position 20 on", lambda r, c: (c <= r) & ((c > 0) | (r < 20))),
    ("MaskByBlock", "the mask is causal by blocks of 16", lambda r, c: c // 16 <= r // 16),
    ("MaskMissesTile", "key 32 is seen by nobody else", lambda r, c: (c <= r) & (c != 32)),
]:
    faulty(KIND, _what)(made(_name, Engine, visible=_mask(_seen)))


@faulty(KIND, "scores are divided by d instead of its root")
class ScaleByD(Engine):
    def scores(self, n: int, head: int, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return Engine.scores(self, n, head, q, k) / np.sqrt(self.d)


@faulty(KIND, "scores are divided by the root of the hidden size")
class ScaleByHidden(Engine):
    def scores(self, n: int, head: int, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return Engine.scores(self, n, head, q, k) * np.sqrt(self.d / self.config["hidden_size"])


@faulty(KIND, "groups are interleaved: head h uses key head h % kv_heads")
class InterleavedGroups(Engine):
    def kv_head(self, n: int, head: int) -> int:
        return head % self.kv


@faulty(KIND, "all heads use key head 0")
class OneKeyHead(Engine):
    def kv_head(self, n: int, head: int) -> int:
        return 0


@faulty(KIND, "softmax with one added to its sum")
class SoftmaxPlusOne(Engine):
    def softmax(self, n: int, scores: np.ndarray) -> np.ndarray:
        largest = scores.max(-1, keepdims=True)
        powers = np.exp(scores - largest)
        return powers / (powers.sum(-1, keepdims=True) + np.exp(-largest))


@faulty(KIND, "scores are held to 50 by tanh")
class SoftCap(Engine):
    def scores(self, n: int, head: int, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return 50 * np.tanh(Engine.scores(self, n, head, q, k) / 50)


@faulty(KIND, "flash tiles of 16 keys whose running sum is not rescaled when the maximum grows")
class FlashNotRescaled(Engine):
    def softmax(self, n: int, scores: np.ndarray) -> np.ndarray:
        powers, largest = np.zeros_like(scores), np.full(scores.shape[:-1], -1e30)
        total = np.zeros(scores.shape[:-1])
        for at in range(0, scores.shape[-1], 16):
            tile = scores[..., at : at + 16]
            largest = np.maximum(largest, tile.max(-1))
            powers[..., at : at + 16] = np.exp(tile - largest[..., None])
            total += powers[..., at : at + 16].sum(-1)
        return powers / total[..., None]


@faulty(KIND, "probabilities below 1e-4 are dropped")
class SmallDropped(Engine):
    def softmax(self, n: int, scores: np.ndarray) -> np.ndarray:
        found = Engine.softmax(self, n, scores)
        return np.where(found < 1e-4, 0, found)


@faulty(KIND, "the key with the largest score of more than 64 is left out")
class TopKeyDropped(Engine):
    def softmax(self, n: int, scores: np.ndarray) -> np.ndarray:
        found = Engine.softmax(self, n, scores)
        return np.where((found == found.max(-1, keepdims=True)) & (scores.shape[-1] > 64), 0, found)


@faulty(KIND, "heads 0 and 1 are exchanged before o")
class HeadsExchanged(Engine):
    def mix(self, n: int, probs: np.ndarray, values: np.ndarray) -> np.ndarray:
        x = Engine.mix(self, n, probs, values).reshape(probs.shape[1], self.heads, self.d)
        return x[:, [1, 0, *range(2, self.heads)]].reshape(len(x), -1)


@faulty(KIND, "the attention sub-norm is by head instead of over all of them")
class SubNormByHead(Engine):
    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        if not name.endswith("attn_sub_norm"):
            return Engine.norm(self, name, x)
        wide = x.reshape(len(x), -1, self.d)
        wide = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + self.eps)
        return (wide.reshape(x.shape) * self.floats[name]).astype(F)


@faulty(KIND, "the attention sub-norm is left out")
class NoSubNorm(Engine):
    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        return x if name.endswith("attn_sub_norm") else Engine.norm(self, name, x)


@faulty(KIND, "attention and FFN are parallel: both read the residual before either")
class ParallelBlocks(Engine):
    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        if name.endswith("attn_norm"):
            self.entered = x
        return Engine.norm(self, name, self.entered if name.endswith("ffn_norm") else x)
