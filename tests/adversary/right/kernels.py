"""Right engines with other integer kernels, layouts, caches and schedules."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from base_engine import Engine, F
from full_engine import FullEngine
from registry import right


@right("offset products: codes 0..2 as weights, the sum of the codes taken away")
class OffsetWeights(FullEngine):
    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        return codes @ (self.trits[name] + 1).T - codes.sum(1, keepdims=True)


@right("offset int8 products: activations as uint8, 128 times the weights' sum taken away")
class OffsetActivations(FullEngine):
    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        w = self.trits[name]
        return (codes + 128) @ w.T - 128 * w.sum(1)


@right("bit planes: the sum under +1 less the sum under -1")
class BitPlanes(FullEngine):
    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        w = self.trits[name]
        return codes @ (w > 0).T.astype(F) - codes @ (w < 0).T.astype(F)


@right("look-up tables: the sums of every pair of activations under all nine weights")
class LookUpTables(FullEngine):
    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        w = self.trits[name].astype(int)
        index = 3 * w[:, 0::2] + w[:, 1::2] + 4
        a, b = codes[:, 0::2].astype(np.int32), codes[:, 1::2].astype(np.int32)
        table = np.stack([a * (i // 3 - 1) + b * (i % 3 - 1) for i in range(9)], -1)
        pairs = np.arange(index.shape[1])
        return np.stack([t[pairs[None], index].sum(1) for t in table])


@right("fused products: q, k and v, and gate and up, each as one matrix")
class FusedProducts(Engine):
    def linears(self, source: str, x: np.ndarray, names: list[str]) -> list[np.ndarray]:
        codes, s = self.quantize(source, x)
        acc = codes @ np.concatenate([self.trits[name] for name in names]).T
        edges = np.cumsum([len(self.trits[name]) for name in names])[:-1]
        parts = np.split(acc, edges, 1)
        return [self.rescale(name, part, s) for name, part in zip(names, parts, strict=True)]


@right("micro-batches of 8 tokens in a prefill")
class MicroBatches(Engine):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        return np.concatenate([Engine.prefill(self, tokens[i : i + 8]) for i in range(0, len(tokens), 8)])


@right("chunked prefill of 17 tokens, an odd tile")
class OddChunks(Engine):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        return np.concatenate([Engine.prefill(self, tokens[i : i + 17]) for i in range(0, len(tokens), 17)])


@right("a prefill is steps")
class StepsAlone(Engine):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        return np.stack([self.step(token) for token in tokens])


@right("a step reads the whole text again: no cache")
class NoCache(Engine):
    def reset(self) -> None:
        Engine.reset(self)
        self.text: list[int] = []

    def read(self, ids: list[int]) -> np.ndarray:
        text = [*self.text, *ids]
        Engine.reset(self)
        logits = Engine.read(self, text)
        self.text = text
        return logits[-len(ids) :]


@right("a paged cache: pages of 16 rows in an order of their own, found through a table")
class PagedCache(Engine):
    def reset(self) -> None:
        Engine.reset(self)
        pages = -(-self.context // 16)
        self.order = np.random.default_rng(len(self.trits)).permutation(pages)
        self.store = np.full((2, self.layers, pages, 16, self.kv, self.d), np.nan, F)

    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at = np.arange(self.length + len(k))
        page, slot = self.order[at // 16], at % 16
        new = slice(self.length, None)
        self.store[0, n, page[new], slot[new]], self.store[1, n, page[new], slot[new]] = k, v
        return self.store[0, n, page, slot], self.store[1, n, page, slot]


@right("a prefix cache that compares every token")
class PrefixCache(Engine):
    def prepare(self) -> None:
        self.known: dict[tuple[int, ...], list[np.ndarray]] = {}

    def reset(self) -> None:
        Engine.reset(self)
        self.text: list[int] = []

    def read(self, ids: list[int]) -> np.ndarray:
        self.text += ids
        key = tuple(self.text)
        if (found := self.known.get(key)) and len(found[0]) >= len(ids):
            rows = len(key)
            self.keys, self.values, self.length = list(found[1]), list(found[2]), rows
            return found[0][-len(ids) :]
        logits = Engine.read(self, ids)
        self.known[key] = [logits, list(self.keys), list(self.values)]
        return logits


@right("four threads, each with its own rows of every product")
class FourThreads(Engine):
    def prepare(self) -> None:
        self.pool = ThreadPoolExecutor(4)

    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        parts = np.array_split(self.trits[name], 4)
        return np.concatenate(list(self.pool.map(lambda w: codes @ w.T, parts)), 1)


@right("four threads, each with its own layers' worth of heads, sums in the order in which they end")
class ThreadedHead(Engine):
    def prepare(self) -> None:
        self.pool = ThreadPoolExecutor(4)

    def head(self, x: np.ndarray) -> np.ndarray:
        e = self.floats["embedding"]
        parts = [slice(i, i + 64) for i in range(0, x.shape[1], 64)]
        total = np.zeros((len(x), len(e)), F)
        for part in self.pool.map(lambda at: x[:, at] @ e[:, at].T, parts):
            total = total + part
        return total


@right("one buffer for all answers, overwritten by the next call")
class OneBuffer(Engine):
    def prepare(self) -> None:
        self.buffer = np.zeros((self.context, self.vocab), F)

    def read(self, ids: list[int]) -> np.ndarray:
        logits = Engine.read(self, ids)
        self.buffer[: len(ids)] = logits
        return self.buffer[: len(ids)]


@right("answers are nested lists of Python's floats")
class Lists(Engine):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        return Engine.prefill(self, tokens).tolist()

    def step(self, token: int) -> np.ndarray:
        return [Engine.step(self, token).tolist()]


@right("prints to stdout and stderr all the time")
class Chatty(Engine):
    def read(self, ids: list[int]) -> np.ndarray:
        print("conforms" * 100)
        return Engine.read(self, ids)
