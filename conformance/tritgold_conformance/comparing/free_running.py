"""Free-running comparison: an engine's trace with the golden one, array by array in execution order.

Each side computes from its own earlier values, so floats may differ by NOISE. Codes and accumulators must be equal,
except at ties: the judge compares with the golden trace that followed the engine's ties (``ties.py``), where
everything is strict. For two trace files without their model, ties cannot be followed: a position is judged up to the
first broken tie that it depends on, its own or one of a position it attends to, and is blind after it. Ties cannot be
followed either in a trace without codes whose logits do not show them: there a position is blind after the first
golden code near a tie that it depends on, and may then differ as much as the golden trace does with random ties.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tritgold.graph import TracedShape, operations, trace_names
from tritgold.trace_names import TraceName, by_token, token_axis
from tritgold_conformance.comparing.classify import classify
from tritgold_conformance.comparing.compare import Comparison, incomparable, refused
from tritgold_conformance.comparing.ties import TIE, BrokenTie, distance_from_tie, other_codes

# Float32 against golden, relative to the largest value of the token. Measured: at most 1.8e-6 over 400 models
# against transformers, and not more in deep models, because equal codes remove the noise of earlier layers.
NOISE = 1e-5


@dataclass
class FreeRunning:
    """The outcome of a comparison.

    divergence: the first array that is wrong; None if there is none. ties: broken ties in execution order. blind:
    bool [tokens], positions that were not judged to the end because they depend on a tie that could not be followed.
    compared, missing: array names. worst: largest float noise, relative to the token's largest value.
    """

    divergence: Comparison | None = None
    ties: list[BrokenTie] = field(default_factory=list)
    blind: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    compared: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    worst: float = 0.0


def compare_traces(
    golden: Mapping[str, np.ndarray],
    engine: Mapping[str, object],
    tokens: int,
    spread: Mapping[str, float] | None = None,
    followed: bool = True,
    handed_out: float = 0.0,
) -> FreeRunning:
    """Compare the golden arrays in execution order. Stops at the first divergence: later ones may follow from it.

    tokens: of the input. spread: by name, how far a blind position may be off, relative to its largest value, in a
    trace whose missing codes may hide broken ties; None: they hide none, and blind positions are not judged. followed:
    False if every position is blind from the beginning, because roundings of a declared precision may break anywhere.
    handed_out: how far a logit may be off because the engine rounds its answer, relative to the largest logit.
    Arrays after the divergence count as missing.
    """
    outcome = FreeRunning(blind=np.full(tokens, not followed))
    for name in trace_names(TracedShape.of(golden)):
        if TraceName.of(name).what == "probs":
            # From here on a position depends on every position that it attends to, traced or not.
            outcome.blind = np.maximum.accumulate(outcome.blind) | _seeing(golden.get(name), outcome.blind)
        if name not in golden:
            continue
        if outcome.divergence is not None or name not in engine:
            outcome.missing.append(name)
            if spread is not None and TraceName.of(name).role == "codes":
                outcome.blind |= _near_tie(name, golden)
            continue
        outcome.compared.append(name)
        array = golden[name]
        problem = incomparable(array, engine[name])
        if problem:
            outcome.divergence = refused(name, array, problem)
        elif not np.array_equal(array, engine[name]):
            noise = NOISE + handed_out * (name == "logits")
            allowed = np.inf if spread is None else max(noise, spread[name])
            outcome.divergence = _Step(name, golden, outcome, allowed, noise).judge(np.asarray(engine[name]))
    return outcome


def _seeing(probs: np.ndarray | None, blind: np.ndarray) -> np.ndarray:
    """Positions that attend to a blind one, bool [tokens]; in a block of a diffusion model also to later ones."""
    if probs is None or probs.ndim != 3 or probs.shape[1:] != (len(blind), len(blind)):
        return blind
    return np.asarray((probs[:, :, blind] > 0).any(axis=(0, 2)))


def _near_tie(name: str, golden: Mapping[str, np.ndarray]) -> np.ndarray:
    """Positions with a golden code within TIE of a tie, bool [tokens]; all, if the quantiser's input was not traced."""
    x, scale = _quantized(name, golden)
    if x is None or scale is None:
        return np.ones(len(golden[name]), bool)
    codes = golden[name]
    return (distance_from_tie(x, scale, codes, other_codes(x, scale, codes)) <= TIE).any(axis=1)


def _quantized(name: str, golden: Mapping[str, np.ndarray]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """x and scale of the quantiser that writes these codes; None if not traced."""
    quantizers = (o for o in operations(TracedShape.of(golden)) if o.kind == "quantize")
    quantizer = next(o for o in quantizers if o.writes["codes"] == name)
    return golden.get(quantizer.reads["x"]), golden.get(quantizer.writes["scale"])


class _Step:
    """One array that is not equal: its difference comes from ties or noise, or is the divergence."""

    def __init__(
        self, name: str, golden: Mapping[str, np.ndarray], outcome: FreeRunning, allowed: float, noise: float
    ) -> None:
        """allowed: of positions that are blind; noise: of the others."""
        self.name, self.golden, self.outcome, self.allowed, self.noise = name, golden, outcome, allowed, noise
        self.seeing = ~outcome.blind[:, None]

    def judge(self, engine: np.ndarray) -> Comparison | None:
        """None if the difference is explained; then the outcome's ties, blindness and noise are updated."""
        array = self.golden[self.name]
        noise = noise_by_token(self.name, array, engine)
        beyond = (noise > self.allowed) & ~self.seeing
        if beyond.any():
            why = f"broken ties and declared roundings stay below {self.allowed:.1e} of the token's largest value"
            return self._diverged(array, engine, beyond, why)
        if TraceName.of(self.name).role == "codes":
            return self._codes(array, engine)
        if TraceName.of(self.name).role == "acc":
            return self._diverged(array, engine, (noise > 0) & self.seeing, "equal codes give equal accumulators")
        self.outcome.worst = max(self.outcome.worst, float((noise * self.seeing).max()))
        wrong = (noise > self.noise) & self.seeing
        why = f"float32 noise stays below {self.noise:.2g} of the token's largest value"
        return self._diverged(array, engine, wrong, why)

    def _codes(self, codes: np.ndarray, engine: np.ndarray) -> Comparison | None:
        off = np.abs(engine.astype(np.float64) - codes)  # int64 would overflow for -2**63
        near = self._distance_from_tie(codes, engine)
        differing = (off > 0) & self.seeing
        wrong = differing & ((off > 1) | (near > TIE))
        if wrong.any():
            return self._diverged(codes, engine, wrong, f"a code is off by one only within {TIE} of a tie")
        for position, channel in np.argwhere(differing).tolist():
            code, distance = int(engine[position, channel]), float(near[position, channel])
            self.outcome.ties.append(BrokenTie(self.name, position, channel, code, distance))
        self.outcome.blind = self.outcome.blind | differing.any(axis=1)
        return None

    def _distance_from_tie(self, codes: np.ndarray, engine: np.ndarray) -> np.ndarray:
        """Distance of the golden x * s from the tie between the codes; infinite if its input was not traced."""
        x, scale = _quantized(self.name, self.golden)
        if x is None or scale is None:
            return np.full(codes.shape, np.inf)
        return distance_from_tie(x, scale, codes, engine)

    def _diverged(self, array: np.ndarray, engine: np.ndarray, wrong: np.ndarray, why: str) -> Comparison | None:
        if not wrong.any():
            return None
        golden, candidate = by_token(self.name, array), by_token(self.name, engine)
        difference = np.where(wrong, np.abs(candidate.astype(np.float64) - golden), -1.0)
        worst = np.unravel_index(int(np.argmax(difference)), difference.shape)
        at = [int(i) for i in worst]
        if token_axis(self.name) == 1:
            head, key = divmod(at[1], array.shape[2])
            at = [head, at[0], key]
        return Comparison(
            self.name,
            "fails",
            compared=int(array.size),
            differing=int((array != engine).sum()),
            max_abs=float(difference.max()),
            worst=at,
            golden=float(golden[worst]),
            engine=float(candidate[worst]),
            what=classify(golden, candidate, wrong),
            why=why,
        )


def noise_by_token(name: str, golden: np.ndarray, engine: np.ndarray) -> np.ndarray:
    """|difference| / the token's largest golden value, float64 [tokens, all other axes]. name: the array's name."""
    ours, theirs = (by_token(name, a).astype(np.float64) for a in (golden, engine))
    return np.abs(theirs - ours) / np.maximum(np.abs(ours).max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
