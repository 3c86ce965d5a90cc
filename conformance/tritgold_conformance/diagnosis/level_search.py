"""One level of a whole run, statistics or the logits of a path: which faults of the library, or pairs, explain it."""

import numpy as np

from tritgold.errors import TritgoldError
from tritgold_conformance.comparing.activation_statistics import moments_distance
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.logits import LOGIT_NOISE, judge_logits
from tritgold_conformance.comparing.next_tokens import floored, judge_text
from tritgold_conformance.comparing.served_as import tokens_only
from tritgold_conformance.comparing.statistics_bounds import FACTOR, FLOOR
from tritgold_conformance.diagnosis.distance import relative
from tritgold_conformance.diagnosis.divergence import divergence
from tritgold_conformance.diagnosis.per_run import PATHS, Measure, Predictions, shown_distance, summary
from tritgold_conformance.diagnosis.placing import in_whole_runs
from tritgold_conformance.diagnosis.search import SHOWN, Found
from tritgold_conformance.diagnosis.view import View
from tritgold_conformance.faults.fault import Fault, Mutant
from tritgold_conformance.faults.noise import noisy
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.results.diagnosis import Divergence, Named, Ranked

_Tried = tuple[Fault, Mutant, np.ndarray]
CLOSER = 0.1  # a candidate must be so much nearer than what it is to explain, or its ties are followed
APART = 0.3  # and by at least so much, when they are, or where the difference is too small for ties
FOLLOWED = 3  # the nearest candidates, whose broken ties are searched for
OWN = 8  # runs of a candidate with noise of its own; where codes seldom break, most of them show none that do
PAIRED = 4  # the nearest candidates, each tried with every other fault after it


class LevelSearch:
    """One level of a whole run."""

    def __init__(self, evidence: View, level: str, predictions: Predictions) -> None:
        self.evidence, self.level, self.predictions = evidence, level, predictions
        self.measure: Measure = predictions.measure(evidence, level)
        self.prefill: Measure = predictions.measure(evidence, "logits")
        self._allowed: np.ndarray | None = None
        self._followed: Mutant | None = None  # the mutant that differs from the engine only by ties

    def passes(self, found: Found) -> bool:
        """Whether the golden model with the faults found so far gives the engine's outputs."""
        if found.mutant is self._followed:
            return True
        if self.level == "next_tokens" and not found.faults:
            return not judge_text(self.evidence.golden, self.evidence.completions).failing
        if self.level != "statistics" and not found.faults:
            golden, theirs = self.evidence.golden, getattr(self.evidence, self.level)
            verdict = judge_logits(self.level, golden, theirs)
            if verdict.passed and verdict.allowed is not None:
                found.within.append(f"what broken ties do to the golden model's own logits ({verdict.allowed:.2g})")
            return verdict.passed
        r = self.measure(found.mutant)
        if self.near(r, None):
            if self.level == "statistics" and float(r.max()) > FLOOR:
                name = list(self.evidence.statistics)[int(np.argmax(r))]
                found.within.append(f"what broken ties do to statistics ({name} is off by {r.max():.2g} of its rms)")
            return True
        if found.faults and self.follows(found.mutant, r, self.measure(self.predictions.base)):
            self._followed = found.mutant
            return True
        return False

    def near(self, r: np.ndarray, base: np.ndarray | None) -> bool:
        """Whether the distances are those of equal models, up to ties. base: r must be much smaller than this."""
        if not r.size or not np.isfinite(r).all():
            return False
        if self.level == "statistics":
            return bool((r <= self.allowed()).all())
        if float(r.max()) <= LOGIT_NOISE:
            # One logit hardly changes a root mean square: a candidate that changes nothing would seem to explain it.
            return base is None or float(r.max()) <= APART * float(base.max())
        if base is not None and summary(r) > CLOSER * summary(base):
            return False
        return self._within_spread(r)

    def allowed(self) -> np.ndarray:
        """The allowed distance: of statistics by name; of logits one number, the root mean square over positions."""
        if self._allowed is None:
            names = self.evidence.statistics
            self._allowed = (
                self.predictions.statistics_allowed(names)
                if self.level == "statistics"
                else np.array([self.predictions.spread()])
            )
        return self._allowed

    def _within_spread(self, r: np.ndarray) -> bool:
        return bool(np.sqrt(np.mean(r * r)) <= self.allowed()[0])

    def rank(self, r: np.ndarray) -> float:
        """One number for ranking a candidate; for statistics relative to the allowed distance, small without ties."""
        return summary(1e-3 * np.maximum(r / self.allowed(), 1e-3)) if self.level == "statistics" else summary(r)

    def follows(self, mutant: Mutant, r: np.ndarray, base: np.ndarray) -> bool:
        """Whether a near candidate differs from the engine only by broken ties.

        Ties are searched for as for the golden model. It is also enough if the engine is not farther away than float
        noise moves the candidate itself, whose codes may break at other values: truncated codes break at integers.
        """
        if not np.isfinite(r).all() or summary(r) > APART * summary(base):
            return False
        own = (self.measure_between(noisy(mutant, seed, times=2.0), mutant) for seed in range(1, OWN + 1))
        if self.level == "statistics":
            return bool((r <= np.maximum(self.allowed(), FACTOR * np.max(list(own), axis=0) + FLOOR)).all())
        size = float(np.sqrt(np.mean(r * r)))
        if any(size <= 2 * float(np.sqrt(np.mean(o * o))) for o in own):
            return True
        if self.level != "logits" or not self._within_spread(r):
            return False
        try:
            run = GoldenRun.of(mutant.checkpoint, self.evidence.golden.tokens, mutant.arithmetic)
        except TritgoldError:
            return False
        verdict = judge_logits("logits", run, self.evidence.logits)
        return verdict.passed and verdict.allowed is None

    def measure_between(self, a: Mutant, b: Mutant) -> np.ndarray:
        """The distance between two mutants, as in ``measure``."""
        if self.level == "statistics":
            names, second = self.evidence.statistics, self.predictions.statistics(b)
            found = moments_distance(self.predictions.statistics(a), {n: second[n] for n in names if n in second})
            return np.append(found, np.full(len(names) - len(found), np.inf))
        path = "logits" if self.level == "next_tokens" else self.level
        ours, theirs = (self.predictions.logits(s, path) for s in (a, b))
        if ours is None or theirs is None:
            return np.zeros(len(self.evidence.golden.tokens))
        if self.level == "next_tokens" and self.evidence.next_tokens is not None:
            return shown_distance(ours, np.where(np.isnan(self.evidence.next_tokens), np.nan, floored(theirs)))
        return relative(ours, theirs)

    def explain(self, found: Found, library: list[Fault]) -> bool:
        """Add the fault, or the two faults, that explain the level; returns whether one was found."""
        base = self.measure(found.mutant)
        tried = list(self._tried(found.mutant, library))
        tried.sort(key=lambda t: self.rank(t[2]))
        if found.first is None:
            found.first = self.divergence(found.mutant)
        if not found.ranking:
            found.ranking = [
                Ranked(fault=f.name, distance=_number(summary(r)), explains=self.near(r, base))
                for f, _, r in tried[:SHOWN]
            ]
        best = next((t for t in tried[:1] if self.near(t[2], base)), None)
        if best is None:
            best = next((t for t in tried[:FOLLOWED] if self.follows(t[1], t[2], base)), None)
            self._followed = best[1] if best is not None else None
        if best is None:
            placed = self._placed(found.mutant, tried)
            best = next((t for t in placed[:1] if self.near(t[2], base)), None)
            tried = placed if best is not None else tried
        if best is not None:
            found.faults.append(self._named(best[0], best[2], tried, base))
            found.mutant = best[1]
            return True
        for first, mutant, r in [t for t in tried if np.isfinite(summary(t[2]))][:PAIRED]:
            second = min(self._tried(mutant, library), key=lambda t: self.rank(t[2]), default=None)
            if second is not None and self.near(second[2], base) and second[0] is not first:
                found.faults += [self._named(first, r, [], base), self._named(second[0], second[2], [], r)]
                found.mutant = second[1]
                return True
        return False

    def _tried(self, mutant: Mutant, library: list[Fault]) -> list[_Tried]:
        after = self.level in ("continued", "steps") and self.evidence.logits is not None
        candidates = ((fault, fault.apply(mutant)) for fault in library if not after or self._leaves_the_prefill(fault))
        possible = [
            (fault, made)
            for fault, made in candidates
            if made is not None and (not after or self.near(self.prefill(made), None))
        ]
        return [(fault, made, self.measure(made)) for fault, made in possible]

    def _placed(self, mutant: Mutant, tried: list[_Tried]) -> list[_Tried]:
        """Faults at one place, the nearest first."""
        here = self.divergence(mutant) if self.level == "statistics" else None
        faults = in_whole_runs([fault for fault, _, _ in tried], mutant, here, len(self.evidence.golden.tokens))
        return sorted(self._tried(mutant, faults), key=lambda t: self.rank(t[2]))

    def _leaves_the_prefill(self, fault: Fault) -> bool:
        """Whether a fault may leave the prefill unchanged: pieces and steps come after the prefill is explained.

        The fault alone must change this path and not the prefill; this test needs one run per fault, not one per pair.
        """
        known = self.predictions
        alone = fault.apply(known.base)
        if alone is None:
            return True
        ours, theirs = known.logits(known.base, "logits"), known.logits(alone, "logits")
        if ours is None or theirs is None or ours.shape != theirs.shape:
            return False
        return self._within_spread(relative(ours, theirs)) and moved(
            known.logits(alone, self.level), known.logits(known.base, self.level)
        )

    def _named(self, fault: Fault, r: np.ndarray, tried: list[_Tried], base: np.ndarray) -> Named:
        shown = self.evidence.next_tokens
        coarse = self.level == "next_tokens" and shown is not None and tokens_only(shown)
        equal = [np.array_equal(other, r) or (coarse and bool((other <= LOGIT_NOISE).all())) for _, _, other in tried]
        same = [f.name for (f, _, _), is_equal in zip(tried, equal, strict=True) if is_equal and f is not fault]
        others = [(f.name, summary(o)) for f, _, o in tried if f.name not in (fault.name, *same)]
        at = "logits" if self.level in (*PATHS, "next_tokens") else next(iter(self.evidence.statistics), "")
        return Named(
            fault=fault.name, summary=fault.summary, level=self.level, at=at, distance=_number(summary(r)) or 0.0,
            golden=_number(summary(base)) or -1.0, same=same,
            next_best=None if coarse else next(((n, d) for n, d in others if np.isfinite(d)), None), tokens_only=coarse,
        )  # fmt: skip

    def divergence(self, mutant: Mutant) -> Divergence:
        """Where the level first differs from the mutant: an array's name, or a position of the logits."""
        r = self.measure(mutant)
        if self.level != "statistics":
            if self.level == "next_tokens":
                problem = judge_text(self.evidence.golden, self.evidence.completions).note
            else:
                theirs = getattr(self.evidence, self.level)
                problem = judge_logits(self.level, self.evidence.golden, theirs, trials=0).problem
            failing = np.flatnonzero(~(r <= LOGIT_NOISE))
            comparison = Comparison("logits", "fails", compared=len(r), differing=len(failing), what=problem)
            position = int(failing[0]) if failing.size else None
            what = problem or "logits differ"
            return Divergence(
                name="logits", level=self.level, operation="logits", layer=None, position=position, channel=None,
                comparison=comparison, what=what,
            )  # fmt: skip
        names = list(self.evidence.statistics)
        off = np.flatnonzero(~(r <= self.allowed()))
        name = names[int(off[0])] if off.size else names[0]
        what = f"statistics off by {r[off[0]]:.2g} of the array's rms" if off.size else ""
        comparison = Comparison(name, "fails", compared=1, what=what)
        found = divergence("statistics", mutant, comparison, np.zeros(1), np.zeros(1), None)
        found.position = found.channel = None
        return found


def moved(ours: np.ndarray | None, golden: np.ndarray | None) -> bool:
    """Whether logits differ by more than noise, or only one of both exists."""
    if ours is None or golden is None or ours.shape != golden.shape:
        return ours is not golden
    return bool((relative(ours, golden) > LOGIT_NOISE).any())


def _number(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
