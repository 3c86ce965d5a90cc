"""Free-running comparison: two traces of one input, each computed from its own earlier values.

Float noise grows from layer to layer, and now and then it carries x * s across a rounding tie: a code is off by
one, and what follows differs by more than rounding without anybody being wrong. So the walk goes in execution
order and keeps, for each position, whether a tie has broken in it or in a position that it attends to. Positions
without a broken tie are held to NOISE; behind one, to FLIPPED. A code that differs where the golden value lies
nowhere near a tie, an accumulator that differs although the codes are equal, or a float beyond its noise is a
divergence, and the first one is named.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tritgold_conformance.classify import classify
from tritgold_conformance.compare import Comparison, incomparable, refused

# Measured on random models of 2 to 4 layers against transformers and XLA; see docs/judging.md.
NOISE = 2e-5  # float32 against golden, relative to the largest value of the token
TIE_NOISE = 127 * NOISE  # the same noise on x * s, in code units
FLIPPED = 0.1  # behind a broken tie: root mean square difference over root mean square of the token

_QUANTIZED_FROM = {
    "attn_in": ("attn_norm",),
    "o_in": ("attn_sub_norm", "attn_mix"),
    "ffn_in": ("ffn_norm",),
    "down_in": ("ffn_sub_norm", "ffn_act"),
}


@dataclass(frozen=True)
class BrokenTie:
    """A code that is off by one at a tie. from_tie: distance of the golden x * s, in code units."""

    name: str
    position: int
    channel: int
    from_tie: float


@dataclass
class FreeRunning:
    """The outcome of a walk.

    divergence: the first array that neither noise nor ties explain; None if there is none. ties: broken ties in
    execution order. flipped: bool [tokens], positions that see a broken tie. compared, missing: array names.
    """

    divergence: Comparison | None = None
    ties: list[BrokenTie] = field(default_factory=list)
    flipped: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    compared: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    worst: float = 0.0  # largest noise of an unflipped position, relative to its token


def compare_traces(golden: Mapping[str, np.ndarray], engine: Mapping[str, object]) -> FreeRunning:
    """Walk the golden arrays in execution order. Stops at the first divergence: what follows says nothing new."""
    tokens = next(iter(golden.values())).shape[0] if golden else 0
    outcome = FreeRunning(flipped=np.zeros(tokens, bool))
    for name, array in golden.items():
        if name not in engine:
            outcome.missing.append(name)
            continue
        outcome.compared.append(name)
        problem = incomparable(array, engine[name])
        if problem:
            outcome.divergence = refused(name, array, problem)
        elif not np.array_equal(array, engine[name]):
            outcome.divergence = _Step(name, golden, outcome).judge(np.asarray(engine[name]))
        if outcome.divergence is not None:
            return outcome
        if name.endswith(".probs"):
            # From here on a position holds something of every position it attends to.
            outcome.flipped = np.maximum.accumulate(outcome.flipped)
    return outcome


class _Step:
    """One array that is not equal: ties, noise, or the divergence."""

    def __init__(self, name: str, golden: Mapping[str, np.ndarray], outcome: FreeRunning) -> None:
        self.name, self.golden, self.outcome = name, golden, outcome

    def judge(self, engine: np.ndarray) -> Comparison | None:
        """None where the difference is explained; then the outcome's ties and flipped positions are extended."""
        array = self.golden[self.name]
        if self.name.endswith(".codes"):
            return self._codes(array, engine)
        rows = _by_token(self.name, array).astype(np.float64), _by_token(self.name, engine).astype(np.float64)
        difference = np.abs(rows[1] - rows[0])
        clean = ~self.outcome.flipped
        if self.name.endswith(".acc"):
            wrong = (difference > 0) & clean[:, None]
            return self._diverged(array, engine, wrong, "equal codes give equal accumulators") if wrong.any() else None
        noise = difference / np.maximum(np.abs(rows[0]).max(axis=1, keepdims=True), 1e-30)
        if clean.any():
            self.outcome.worst = max(self.outcome.worst, float(noise[clean].max()))
        wrong = (noise > NOISE) & clean[:, None]
        if wrong.any():
            return self._diverged(
                array, engine, wrong, f"float32 noise stays below {NOISE} of the token's largest value"
            )
        rms = np.sqrt((difference**2).mean(axis=1)) / np.maximum(np.sqrt((rows[0] ** 2).mean(axis=1)), 1e-30)
        wrong = np.broadcast_to(((rms > FLIPPED) & ~clean)[:, None], difference.shape)
        return (
            self._diverged(array, engine, wrong, f"a broken tie moves a token by less than {FLIPPED}")
            if wrong.any()
            else None
        )

    def _codes(self, codes: np.ndarray, engine: np.ndarray) -> Comparison | None:
        off = np.abs(engine.astype(np.int64) - codes)
        from_tie = self._distance_from_tie(codes.shape)
        clean = ~self.outcome.flipped[:, None]
        wrong = clean & (off > 0) & ((off > 1) | (from_tie > TIE_NOISE))
        if wrong.any():
            return self._diverged(codes, engine, wrong, f"a code is off by one only within {TIE_NOISE:.2g} of a tie")
        for position, channel in np.argwhere(clean & (off > 0)):
            tie = BrokenTie(self.name, int(position), int(channel), float(from_tie[position, channel]))
            self.outcome.ties.append(tie)
        self.outcome.flipped = self.outcome.flipped | (off > 0).any(axis=1)
        return None

    def _distance_from_tie(self, shape: tuple[int, ...]) -> np.ndarray:
        """|x * s - nearest tie| of the golden trace; infinite where its input was not traced."""
        at, _, what = self.name.removesuffix(".codes").rpartition(".")
        source = next((f"{at}.{n}" for n in _QUANTIZED_FROM[what] if f"{at}.{n}" in self.golden), None)
        scale = self.golden.get(f"{at}.{what}.scale")
        if source is None or scale is None:
            return np.full(shape, np.inf)
        scaled = self.golden[source].astype(np.float64) * scale[:, None]
        return np.abs(np.abs(scaled - np.floor(scaled)) - 0.5)

    def _diverged(self, array: np.ndarray, engine: np.ndarray, wrong: np.ndarray, why: str) -> Comparison:
        golden, candidate = _by_token(self.name, array), _by_token(self.name, engine)
        difference = np.where(wrong, np.abs(candidate.astype(np.float64) - golden), -1.0)
        worst = np.unravel_index(int(np.argmax(difference)), difference.shape)
        return Comparison(
            self.name,
            "fails",
            compared=int(array.size),
            differing=int((array != engine).sum()),
            max_abs=float(difference.max()),
            worst=[int(i) for i in worst],
            golden=float(golden[worst]),
            engine=float(candidate[worst]),
            what=classify(golden, candidate, wrong),
            why=why,
        )


def _by_token(name: str, array: np.ndarray) -> np.ndarray:
    """[tokens, everything else]; probs lie [heads, tokens, keys]."""
    tokens_first = array.transpose(1, 0, 2) if name.endswith(".probs") else array
    return tokens_first.reshape(tokens_first.shape[0], -1)
