"""Right engines with other attention and other rotations."""

import numpy as np
from base_engine import Engine, F
from full_engine import FullEngine
from registry import right
from text_engine import TextEngine


@right("RoPE as a product of complex numbers")
class ComplexRope(FullEngine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        half = self.d // 2
        turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * positions[:, None, None] * self.frequencies())
        return np.concatenate([turned.real, turned.imag], -1).astype(F)


@right("RoPE with the halves exchanged and the angle turned, and exchanged back")
class MirroredRope(FullEngine):
    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        half = self.d // 2
        y = Engine.rotate(self, name, np.concatenate([x[..., half:], x[..., :half]], -1), -positions)
        return np.concatenate([y[..., half:], y[..., :half]], -1)


@right("RoPE from a float32 table of the context")
class TableRope(FullEngine):
    def prepare(self) -> None:
        angle = np.arange(self.context)[:, None] * self.frequencies()
        self.table = np.sin(angle).astype(F), np.cos(angle).astype(F)

    def rotate(self, name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        sin, cos = (t[positions][:, None] for t in self.table)
        a, b = x[..., : self.d // 2], x[..., self.d // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


@right("positions count from 1 for queries and keys alike", kind="right")
class CountsFromOne(Engine):
    def positions(self, count: int) -> np.ndarray:
        return Engine.positions(self, count) + 1


@right("softmax to the base of 2")
class BaseTwo(FullEngine):
    def softmax(self, n: int, scores: np.ndarray) -> np.ndarray:
        t = scores * np.log2(np.e)
        powers = np.exp2((t - t.max(-1, keepdims=True)).astype(F))
        return powers / powers.sum(-1, keepdims=True)


@right("softmax by a logarithm: exp(score - logsumexp)")
class LogSumExp(FullEngine):
    def softmax(self, n: int, scores: np.ndarray) -> np.ndarray:
        largest = scores.max(-1, keepdims=True)
        return np.exp(scores - (largest + np.log(np.exp(scores - largest).sum(-1, keepdims=True))))


def _flash(engine: Engine, n: int, q: np.ndarray, keys: np.ndarray, values: np.ndarray, tile: int) -> np.ndarray:
    """One pass over tiles of keys, with the running maximum and sum, in float32."""
    seen, out = engine.visible(n, len(q), len(keys)), []
    for h in range(engine.heads):
        largest, total = np.full((len(q), 1), -1e30, F), np.zeros((len(q), 1), F)
        mixed = np.zeros((len(q), engine.d), F)
        for at in range(0, len(keys), tile):
            k, v = (a[at : at + tile, engine.kv_head(n, h)] for a in (keys, values))
            score = np.where(seen[:, at : at + tile], q[:, h] @ k.T / F(np.sqrt(engine.d)), F(-1e30))
            top = np.maximum(largest, score.max(1, keepdims=True))
            power = np.where(seen[:, at : at + tile], np.exp(score - top), F(0))
            kept = np.exp(largest - top)
            total, mixed, largest = total * kept + power.sum(1, keepdims=True), mixed * kept + power @ v, top
        out.append(mixed / total)
    return np.stack(out, 1).reshape(len(q), -1)


@right("flash attention in tiles of 16 keys")
class Flash16(Engine):
    def attend(self, n: int, q: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        return _flash(self, n, q, keys, values, 16)


@right("flash attention in tiles of 7 keys, an odd number")
class Flash7(Engine):
    def attend(self, n: int, q: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        return _flash(self, n, q, keys, values, 7)


@right("queries are divided by the root of d before RoPE's product with keys")
class ScaledQueries(Engine):
    def scores(self, n: int, head: int, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return (q / F(np.sqrt(self.d))) @ k.T


@right("keys and values of each group are repeated for its heads")
class RepeatedGroups(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, values = Engine.cached(self, n, k, v)
        return np.repeat(keys, self.heads // self.kv, 1), np.repeat(values, self.heads // self.kv, 1)

    def kv_head(self, n: int, head: int) -> int:
        return head


@right("the mask is -1e9 added instead of minus infinity")
class AddedMask(Engine):
    def probabilities(self, n: int, q: np.ndarray, keys: np.ndarray) -> np.ndarray:
        scores = np.stack([self.scores(n, h, q[:, h], keys[:, self.kv_head(n, h)]) for h in range(self.heads)])
        return self.softmax(n, scores + np.where(self.visible(n, len(q), len(keys)), 0, -1e9)).astype(F)


@right("loops and text by the checkpoint's own tokenizer, the trained model", model="kjv-ar")
class LoopsAndText(TextEngine):
    pass


@right("loops, text and block diffusion", model="kjv-dlm", options=("--tokens", "8"))
class LoopsTextDiffusion(TextEngine):
    pass
