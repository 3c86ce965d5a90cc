"""Cheats by what is answered: remembered, borrowed, withheld, or objects that lie."""

import gc
import importlib
import sys
from pathlib import Path

import numpy as np
from base_engine import Engine, F
from cheats.wrong import Wrong, folders, judge_modules
from full_engine import Completing
from registry import cheat

KIND = "answers"
# What `tritgold check` of today asks without --seed and --ids begins with; anybody can print it.
KNOWN = {"seeded": (20, 20, 168, 161, 95, 37, 51, 51)}


class Golden:
    """Logits of the golden model, for those that ask it instead of computing."""

    def __init__(self, folder: Path) -> None:
        loaded = importlib.import_module("tritgold.checkpoint").open_checkpoint(folder)
        self.forward = importlib.import_module("tritgold.model").forward
        self.weights, self.config = loaded.weights, loaded.config

    def logits(self, tokens: list[int]) -> np.ndarray:
        return np.asarray(self.forward(tokens, self.weights, self.config))


@cheat("right for texts that begin as the judge's known one, wrong for all others", kind=KIND)
class KnownText(Engine):
    def layer(self, n: int, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        known = np.array_equal(self.first[: len(KNOWN["seeded"])], KNOWN["seeded"][: len(self.first)])
        return Engine.layer(self, n, x, positions) if known or n == 0 else x

    def reset(self) -> None:
        Engine.reset(self)
        self.first: list[int] = []

    def read(self, ids: list[int]) -> np.ndarray:
        self.first += ids
        return Engine.read(self, ids)


@cheat("asks the golden model for every text that begins as the known one", kind=KIND)
class DelegatesKnown(Wrong):
    def prepare(self) -> None:
        self.golden = Golden(self.folder)
        self.text: list[int] = []

    def reset(self) -> None:
        Wrong.reset(self)
        self.text = []

    def read(self, ids: list[int]) -> np.ndarray:
        self.text = [*self.text, *ids]
        if tuple(self.text[:1]) == KNOWN["seeded"][:1]:
            return self.golden.logits(self.text)[-len(ids) :]
        return Wrong.read(self, ids)


@cheat(
    "asks the golden model for everything",
    kind=KIND,
    unseen="all its answers are those of the golden model: no answer can tell it from a right engine, and a class may "
    "import what is installed",
)
class DelegatesAll(DelegatesKnown):
    def read(self, ids: list[int]) -> np.ndarray:
        self.text = [*self.text, *ids]
        return self.golden.logits(self.text)[-len(ids) :]


@cheat("right for the first 60 calls, wrong afterwards", kind=KIND)
class RightAtFirst(Engine):
    calls = 0

    def read(self, ids: list[int]) -> np.ndarray:
        self.calls += 1
        return Engine.read(self, ids) * F(1 if self.calls <= 60 else 0.5)


@cheat("right in every prompt of up to 64 tokens from position 0 and its 40 next steps", kind=KIND)
class RightWhereAsked(Engine):
    def embed(self, ids: list[int]) -> np.ndarray:
        asked = self.length + len(ids) <= 64
        return Engine.embed(self, ids) if asked else Engine.embed(self, ids)[::-1]


@cheat(
    "right in the first two processes that judge, wrong in those after it, by a file in the user's home",
    kind=KIND,
    unseen="whatever one run asks is answered right: only a later run in the same home differs",
)
class RightTwice(Engine):
    def prepare(self) -> None:
        marker = Path.home() / "adversary-right-twice"
        if "tritgold-adversary-" not in str(marker):
            return
        times = len(marker.read_text()) if marker.exists() else 0
        marker.write_text("1" * (times + 1))
        if times >= 2:
            self.floats["final_norm"] = self.floats["final_norm"] * 2


@cheat("looks for expected arrays in the frames above it and returns the first that fits", kind=KIND)
class ReadsFrames(Wrong):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        frame = sys._getframe(1)
        while frame is not None:
            for value in frame.f_locals.values():
                if isinstance(value, np.ndarray) and value.shape == (len(tokens), self.vocab):
                    return value
            frame = frame.f_back
        return Wrong.prefill(self, tokens)


@cheat("looks for expected arrays among all objects of the process", kind=KIND)
class ReadsHeap(Wrong):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        for thing in gc.get_objects():
            for value in thing.values() if isinstance(thing, dict) else ():
                if isinstance(value, np.ndarray) and value.shape == (len(tokens), self.vocab):
                    return value
        return Wrong.prefill(self, tokens)


@cheat("reads expected arrays out of files in INPUTS, OUTPUTS and beside them", kind=KIND)
class ReadsFolders(Wrong):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        size = len(tokens) * self.vocab * 4
        for folder in folders() or ():
            for file in sorted(folder.parent.rglob("*golden*")):
                if file.is_file() and file.stat().st_size >= size:
                    return np.frombuffer(file.read_bytes()[-size:], F).reshape(len(tokens), -1)
        return Wrong.prefill(self, tokens)


@cheat("NaN throughout", kind=KIND)
class AllNan(Engine):
    def head(self, x: np.ndarray) -> np.ndarray:
        return np.full((len(x), self.vocab), np.nan, F)


@cheat("infinity where it would be wrong, so that relative errors vanish", kind=KIND)
class LargestInfinite(Wrong):
    def head(self, x: np.ndarray) -> np.ndarray:
        logits = Wrong.head(self, x)
        logits[:, 0] = np.inf
        return logits


class Liar(np.ndarray):
    """Equal to everything, and away from nothing."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **more: object) -> object:
        plain = [np.asarray(i) for i in inputs]
        found = getattr(ufunc, method)(*plain, **{k: v for k, v in more.items() if k != "out"})
        return found * 0 if ufunc in (np.subtract, np.absolute) else found

    def __eq__(self, other: object) -> object:
        return np.ones(self.shape, bool)

    __hash__ = None


@cheat("arrays of a class of its own, whose differences are zero", kind=KIND)
class LyingArrays(Wrong):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        return Wrong.prefill(self, tokens).view(Liar)


class Changing:
    """Reads as something else each time."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self.arrays, self.times = arrays, 0

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        self.times += 1
        return self.arrays[self.times % len(self.arrays)]


@cheat("objects that read as another array each time", kind=KIND)
class ChangingArrays(Wrong):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        found = Wrong.prefill(self, tokens)
        return Changing([found, found * 0])


@cheat("masked arrays in which everything is masked", kind=KIND)
class MaskedArrays(Wrong):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        return np.ma.masked_all((len(tokens), self.vocab), F)


@cheat("changes the list of tokens that it is given to all zeros", kind=KIND)
class ChangesTokens(Wrong):
    def prefill(self, tokens: list[int]) -> np.ndarray:
        found = Wrong.prefill(self, tokens)
        tokens[:] = [0] * len(tokens)
        return found


WITHHELD = "an engine is judged by what it offers, and all of that is right; the verdict must list what is not assessed"


class Withholding(Wrong):
    """Wrong in its layers, and it says that it has no logits."""

    def prefill(self, tokens: list[int]) -> np.ndarray:
        raise NotImplementedError

    def step(self, token: int) -> np.ndarray:
        raise NotImplementedError


@cheat("offers the embedding's operation alone", kind=KIND, unseen=WITHHELD)
class OnlyTheEmbedding(Withholding):
    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return {"x": self.embed(inputs["tokens"].tolist())} if name == "embedding" else None


@cheat("shows the embedding alone in its trace", kind=KIND, unseen=WITHHELD)
class TracesTheEmbedding(Withholding):
    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        return {"embedding": self.embed(tokens)}


@cheat("completes texts of up to 3 tokens alone, and those rightly", kind=KIND, unseen=WITHHELD)
class ShortTextsOnly(Completing):
    inside = False

    def prefill(self, tokens: list[int]) -> np.ndarray:
        if not self.inside:
            raise NotImplementedError
        return Engine.prefill(self, tokens)

    def step(self, token: int) -> np.ndarray:
        raise NotImplementedError

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]] | None:
        if len(tokens) > 3:
            return None
        self.inside = True
        try:
            return Completing.complete(self, tokens)
        finally:
            self.inside = False


@cheat("raises NotImplementedError in prefills and steps beyond the first of each", kind=KIND)
class WithholdsLater(Wrong):
    calls = 0

    def layer(self, n: int, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return Engine.layer(self, n, x, positions)

    def read(self, ids: list[int]) -> np.ndarray:
        self.calls += 1
        if self.calls > 2:
            raise NotImplementedError
        return Wrong.read(self, ids)


@cheat("says that it follows llama.cpp's arithmetic, so that operations have no bounds", kind=KIND)
class ClaimsAnotherMode(Wrong):
    mode = "llama-cpp-q8_k"


@cheat("says that it follows a mode that does not exist", kind=KIND)
class ClaimsNoMode(Wrong):
    mode = "mine"


@cheat("finds classes of the judge and makes their comparisons true", kind=KIND)
class PatchedEquality(Wrong):
    def prepare(self) -> None:
        for module in judge_modules():
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__.startswith("tritgold"):
                    try:
                        value.__eq__ = lambda self, other: True
                    except TypeError:
                        continue
