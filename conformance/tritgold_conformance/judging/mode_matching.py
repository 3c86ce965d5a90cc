"""Which other arithmetic an engine follows, where its logits or its text fail by the one that it was held to.

"It computes as llama.cpp does" is worth more than "wrong": the mode is one option away, the fault would be looked for.
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
FAR = 0.5  # of logits: farther off no declared precision brings an engine. Of text, in nats
POLICIES = ("kv-f16", "kv-bf16", "kv-int8", "kv-q8_0", "attention-f16", "weights-only")


def matched_mode(
    golden: GoldenRun, paths: Mapping[str, np.ndarray], completions: Sequence[Completion | None] = ()
) -> str:
    """The id of another of ARITHMETICS by which all that was given passes; empty where none does, or nothing is given.

    paths: logits [tokens, vocab] by path. completions: next tokens, one a position. A golden pass for each other mode;
    and one for each of POLICIES, where the engine is not far from the golden model and declares none.
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
        # Most engines that fail are as far from every mode: for them no ties are searched.
        near = bool(policy.logits) or _distance(other, paths, completions) < NEARER * far
        if near and _passes(other, paths, completions):
            return other.mode
    return ""


def _policies(paths: Mapping[str, np.ndarray]) -> list[Policy]:
    """POLICIES; where all logits are numbers of 16 bits, first that they are handed out so."""
    rows = [np.asarray(logits, np.float32) for logits in paths.values()]
    narrow = [name for name, rounded in (("logits-f16", f16), ("logits-bf16", bf16))
              if rows and all(np.array_equal(rounded(a), a) for a in rows)]  # fmt: skip
    return [named_policy(name) for name in (*narrow, *POLICIES)]


def _distance(golden: GoldenRun, paths: Mapping[str, np.ndarray], completions: Sequence[Completion | None]) -> float:
    """One number to compare two modes by: of logits, the median position's; of text, the mean one's."""
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
