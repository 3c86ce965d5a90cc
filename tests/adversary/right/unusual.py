"""Right engines whose arithmetic is written as hardly any engine has it."""

import numpy as np
from base_engine import Engine, F
from full_engine import FullEngine
from registry import right


@right("products modulo 251, 509 and 7, put together by the Chinese remainder theorem")
class Residues(FullEngine):
    """A sum is at most 128 x 768 = 98,304 here; the product of the moduli, 894,313, is more than twice that."""

    MODULI = (251, 509, 7)

    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        whole = int(np.prod(self.MODULI))
        found = np.zeros((len(codes), len(self.trits[name])), np.int64)
        for m in self.MODULI:
            part = np.rint(np.mod(codes, m).astype(np.float64) @ np.mod(self.trits[name], m).T.astype(np.float64))
            rest = whole // m
            found += np.mod(part.astype(np.int64), m) * rest * pow(rest, -1, m)
        found %= whole
        return np.where(found > whole // 2, found - whole, found).astype(F)


@right("codes as two digits to the base of 16, a product for each")
class Nibbles(FullEngine):
    def accumulate(self, name: str, codes: np.ndarray) -> np.ndarray:
        high = np.floor(codes / 16)
        low = codes - 16 * high
        return 16 * (high @ self.trits[name].T) + low @ self.trits[name].T


@right("softmax less the root mean square of the scores in place of their maximum, in float64")
class MeanSoftmax(FullEngine):
    def softmax(self, n: int, scores: np.ndarray) -> np.ndarray:
        finite = np.where(np.isfinite(scores), scores, 0.0)
        powers = np.exp(scores - np.sqrt((finite * finite).mean(-1, keepdims=True)))
        return powers / powers.sum(-1, keepdims=True)


@right("drafts: four steps at a time are guessed, read as one piece, and what was guessed wrong is taken back")
class VerifiedDrafts(Engine):
    def step(self, token: int) -> np.ndarray:
        guess = [int(token), *((int(token) + n) % self.vocab for n in (1, 2, 3))]
        if self.length + 4 > self.context:
            return Engine.step(self, token)
        row = self.read(guess)[0]
        for kept in (self.keys, self.values):
            for n in range(self.layers):
                kept[n] = kept[n][: len(kept[n]) - 3]
        self.length -= 3
        return row
