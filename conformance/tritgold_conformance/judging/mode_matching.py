"""Which other arithmetic an engine follows, if its logits or next tokens fail in the requested mode.

"It computes like llama.cpp" is more useful than "wrong": the mode is only another option, not a fault to search for.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tritgold.errors import TritgoldError
from tritgold.layers.arithmetic import ARITHMETICS
from tritgold_conformance.comparing.compare import incomparable
from tritgold_conformance.comparing.logits import Explained, judge_logits
from tritgold_conformance.comparing.next_tokens import Completion, judge_text
from tritgold_conformance.comparing.tie_sensitivity import relative_rms
from tritgold_conformance.comparing.ties import follow_ties
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.policies import FLOAT32, Policy, named_policy
from tritgold_conformance.policies.roundings import bf16, f16

NEARER = 0.7
FAR = 0.5  # a larger distance is not caused by any declared precision; relative for logits, in nats for next tokens
POLICIES = ("kv-f16", "kv-bf16", "kv-int8", "kv-q8_0", "attention-f16", "weights-only")


def matched_mode(
    golden: GoldenRun, paths: Mapping[str, np.ndarray], completions: Sequence[Completion | None] = ()
) -> str:
    """The id of another of ARITHMETICS in which all given answers pass; empty if there is none or nothing is given.

    paths: logits [tokens, vocab] by path. completions: next tokens, one for each position. Costs a golden pass for each
    other mode, and one for each of POLICIES if the engine declares none and is not far from the golden model.
    """
    if not paths and not any(completions):
        return ""
    far = _distance(golden, paths, completions)
    others = [(arithmetic, FLOAT32) for arithmetic in ARITHMETICS.values() if arithmetic != golden.plain]
    if golden.policy == FLOAT32 and far < FAR:
        others += [(golden.plain, policy) for policy in _policies(paths)]
    for arithmetic, policy in others:
        try:
            other = GoldenRun.of(golden.checkpoint, golden.tokens, arithmetic, policy)
        except TritgoldError:  # blocks that do not divide this model's rows
            continue
        # Most engines that fail are equally far from every mode: then no ties are searched for.
        near = bool(policy.logits) or _distance(other, paths, completions) < NEARER * far
        if near and _passes(other, paths, completions):
            return other.mode
    return ""


def _policies(paths: Mapping[str, np.ndarray]) -> list[Policy]:
    """POLICIES; if all logits are 16-bit numbers, first the policy that they are returned in this type."""
    rows = [np.asarray(logits, np.float32) for logits in paths.values()]
    narrow = [name for name, rounded in (("logits-f16", f16), ("logits-bf16", bf16))
              if rows and all(np.array_equal(rounded(a), a) for a in rows)]  # fmt: skip
    return [named_policy(name) for name in (*narrow, *POLICIES)]


def _distance(golden: GoldenRun, paths: Mapping[str, np.ndarray], completions: Sequence[Completion | None]) -> float:
    """The distance to a mode: for logits that of the median position, for next tokens the mean."""
    for logits in paths.values():
        if incomparable(golden.logits, logits):
            return np.inf
        return float(np.median(relative_rms(golden.logits, logits)))
    shifted, off = golden.logits.astype(np.float64) - golden.logits.max(axis=1, keepdims=True), []
    rows = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    for row, completion in zip(rows, completions, strict=True):
        if completion is not None:
            token, shown = completion
            if any(not 0 <= i < len(row) for i in shown):
                return np.inf
            off.append(max((abs(row[i] - value) for i, value in shown.items()), default=token != int(np.argmax(row))))
    return float(np.mean(off))


def _passes(golden: GoldenRun, paths: Mapping[str, np.ndarray], completions: Sequence[Completion | None]) -> bool:
    known: list[Explained] = []
    for path, logits in paths.items():
        verdict = judge_logits(path, golden, logits, known)
        if not verdict.passed:
            return False
        if verdict.ties:
            known.append(Explained(follow_ties(golden, {}, verdict.ties)[0]["logits"], verdict.ties))
    return not any(completions) or not judge_text(golden, completions).failing
