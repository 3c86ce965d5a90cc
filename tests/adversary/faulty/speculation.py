"""What serving engines do to read less: verified drafts, pages, prompts that extend others, padding, look-ups."""

import numpy as np
from base_engine import Engine, F
from registry import faulty

KIND = "speculation"
Row = np.ndarray


class Pieces(Engine):
    """Knows what was read since `reset`, and where the present call began."""

    def reset(self) -> None:
        Engine.reset(self)
        self.seen: list[int] = []

    def read(self, ids: list[int]) -> np.ndarray:
        self.seen += ids
        return Engine.read(self, ids)


@faulty(KIND, "drafts of 2 to 8 tokens after a prefix see one another, as no mask is made for so few")
class DraftUnmasked(Engine):
    def visible(self, n: int, rows: int, columns: int) -> np.ndarray:
        seen = Engine.visible(self, n, rows, columns)
        if 2 <= rows <= 8 and columns > rows:
            seen[:] = True
        return seen


@faulty(KIND, "pages of 16: the first row of a piece that begins where a page does overwrites the row before")
class ExactPages(Engine):
    def cached(self, n: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(k) > 1 and len(self.keys[n]) and len(self.keys[n]) % 16 == 0:
            self.keys[n][-1], self.values[n][-1] = k[0], v[0]
        return Engine.cached(self, n, k, v)


@faulty(KIND, "a step after three tokens that stood together before is answered from what was said there")
class PromptLookup(Pieces):
    def reset(self) -> None:
        Pieces.reset(self)
        self.said: dict[tuple[int, ...], Row] = {}

    def step(self, token: int) -> Row:
        row, key = Pieces.step(self, token), tuple(self.seen[-3:])
        return self.said.setdefault(key, row) if len(key) == 3 else row


@faulty(KIND, "runs of more than six equal tokens are read as six")
class RunOfSeven(Pieces):
    def embed(self, ids: list[int]) -> np.ndarray:
        rows, whole = Pieces.embed(self, ids), self.seen
        for at in range(len(ids)):
            upto = len(whole) - len(ids) + at + 1
            if upto > 6 and len(set(whole[upto - 7 : upto])) == 1:
                rows[at] = 0
        return rows


@faulty(KIND, "a prompt is padded to a multiple of 8, and the padding stays in the cache")
class PaddingKept(Engine):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        rows = Engine.prefill(self, tokens)
        if len(tokens) > 1 and len(tokens) % 8:
            before = self.length
            Engine.read(self, [0] * (-len(tokens) % 8))
            self.length = before
        return rows


@faulty(KIND, "a prompt that goes on where the last session ended takes its cache, whose last row it reads again")
class ExtendedPrompt(Pieces):
    kept: tuple[list[int], list[np.ndarray], list[np.ndarray]] = ([], [], [])

    def reset(self) -> None:
        if getattr(self, "seen", None):
            self.kept = self.seen, self.keys, self.values
        Pieces.reset(self)

    def prefill(self, tokens: list[int]) -> np.ndarray:
        ids, keys, values = self.kept
        again = 1 < len(ids) < len(tokens) and not self.seen and list(tokens[: len(ids)]) == ids
        rows = Pieces.prefill(self, tokens)
        if again:
            self.reset()
            self.keys, self.values, self.length = list(keys), list(values), len(ids)
            more = Pieces.read(self, [int(t) for t in tokens[len(ids) - 1 :]])
            rows[len(ids) :] = more[1:]
            self.seen = [int(t) for t in tokens]
        return rows


@faulty(KIND, "rows of the embedding grow by 1 part in 100,000 each time they are read, in place")
class DriftingRows(Engine):
    def embed(self, ids: list[int]) -> np.ndarray:
        self.floats["embedding"][ids] *= F(1.00001)
        return Engine.embed(self, ids)


@faulty(KIND, "steps alone have a head in bfloat16")
class StepHeadBf16(Engine):
    def head(self, x: np.ndarray) -> np.ndarray:
        return Engine.head(self, _bf16(x) if len(x) == 1 else x)


@faulty(KIND, "beyond 64 tokens, those that had less than 1 in 1,000 of a step's attention are evicted")
class Evicts(Engine):
    def mix(self, n: int, probs: np.ndarray, values: np.ndarray) -> np.ndarray:
        if probs.shape[1] == 1 and probs.shape[2] > 64:
            self.values[n] = np.where((probs.max((0, 1)) < 1e-3)[:, None, None], F(0), values)
        return Engine.mix(self, n, probs, values)


@faulty(KIND, "the tail of a prompt in chunks of 32 is read as the last 32 tokens, which are then twice in the cache")
class LastChunkTwice(Engine):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        rows, extra = Engine.prefill(self, tokens), len(tokens) % 32
        if len(tokens) > 32 and extra:
            for kept in (self.keys, self.values):
                for n in range(self.layers):
                    kept[n] = np.concatenate([kept[n], kept[n][extra - 32 :]])
        return rows


def _bf16(x: np.ndarray) -> np.ndarray:
    return ((x.astype(F).view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(F)
