"""Do our trace and a peer's describe the same computation? Written for numbers that may differ by float rounding.

An activation within rounding of a tie may get a code one higher or lower in the peer; from there on the two differ
visibly, and neither is wrong. So a position is judged up to the first quantiser, in execution order, whose codes
differ in a row that the position can see: everything before must agree within float noise, and there the codes may
differ by one, at a tie. Positions without such a difference must have equal logits up to float noise.
``follow_ties`` then repeats our pass with the peer's codes at the ties, and every position must agree.

The judge in ``conformance/`` will take this over. The bounds: ``survey.py`` measures what they allow for.
"""

from dataclasses import dataclass, field
from unittest import mock

import numpy as np
from peer_trace import Peer, recorded

from tritgold.config import ModelConfig
from tritgold.graph import Operation, operations, trace_names
from tritgold.model import forward
from tritgold.quantize import absmax_int8
from tritgold.trace import Trace
from tritgold.weights import ModelWeights

# survey.py, 400 models of 2 and 3 layers, transformers in float32 against us. Largest seen: logits 5.8e-7, floats
# 1.8e-6, x * s 2.4e-4 of a code (6.6 million codes), 4.8e-5 where codes did differ; no more in 8 layers 512 wide, since
# equal codes wipe out the noise before them. x and s, each off by e of the row's largest value, move x * s by 254 e at
# most: with FLOATS that is 2.5e-3, so TIE is not the looser of the two.
LOGITS = 2e-5  # of the largest logit
FLOATS = 1e-5  # of the row's largest value
TIE = 1e-3  # of a code: distance of our x * s from the tie
TIED_ROWS = 0.02  # of all rows that are quantised; 4 of 320 were the most


@dataclass
class Verdict:
    """problems: empty where the two agree; the first is the first in execution order."""

    problems: list[str] = field(default_factory=list)
    far: list[int] = field(default_factory=list)  # positions whose logits differ by more than LOGITS
    tied: dict[int, str] = field(default_factory=dict)  # position -> the quantiser where it met its first tie
    tied_rows: int = 0
    ties: list[float] = field(default_factory=list)  # distances, one for each code
    worst: dict[str, float] = field(default_factory=lambda: {"logits": 0.0, "floats": 0.0})


def compare(golden: Trace, config: ModelConfig, peer: Peer) -> Verdict:
    """Walk the operations once; ``blind`` marks the positions that have met a difference and are judged no further."""
    verdict = Verdict()
    wanted = recorded(trace_names(config))
    for name in sorted(wanted ^ set(peer.arrays)):
        verdict.problems.append(f"{name}: {'not in the peer' if name in wanted else 'in the peer, not in our graph'}")
    if golden.tokens != peer.tokens.tolist() or golden["logits"].shape != peer.logits.shape:
        verdict.problems.append("tokens: not the same")
        return verdict

    blind = np.zeros(len(peer.tokens), bool)
    quantised = 0
    last_attention = f"layers.{config.layers - 1}.attn_mix"
    own_row_only = False  # beyond the last attention a position sees no other
    for operation in operations(config):
        own_row_only |= operation.name == last_attention
        for role, name in operation.writes.items():
            if name in peer.arrays and role != "codes":
                rows = np.arange(len(blind)) if role == "scale" else peer.rows
                _floats(verdict, name, golden[name][rows], peer.arrays[name], ~blind[rows])
        if operation.kind == "quantize" and operation.writes["codes"] in peer.arrays:
            quantised += len(blind)
            differing = _codes(verdict, operation, golden, peer, ~blind)
            blind |= differing if own_row_only else np.logical_or.accumulate(differing)
            for position in np.flatnonzero(blind):
                verdict.tied.setdefault(int(position), operation.name)

    difference = np.abs(golden["logits"] - peer.logits).max(axis=1) / np.abs(peer.logits).max()
    verdict.far = np.flatnonzero(~(difference <= LOGITS)).tolist()
    verdict.worst["logits"] = float(difference[~blind].max(initial=0.0))
    for position in sorted(set(verdict.far) - set(verdict.tied)):
        verdict.problems.append(f"logits of {position}: differ by {difference[position]:.1e}, all codes being equal")
    if verdict.tied_rows > TIED_ROWS * quantised:
        verdict.problems.append(f"ties: in {verdict.tied_rows} of {quantised} quantised rows")
    return verdict


def _floats(verdict: Verdict, name: str, ours: np.ndarray, theirs: np.ndarray, seeing: np.ndarray) -> None:
    """Compare rows that have met no difference, relative to the largest value of each."""
    ours, theirs = (array.reshape(len(seeing), -1)[seeing] for array in (ours, theirs))
    largest = np.maximum(np.abs(ours).max(axis=1), np.finfo(np.float32).tiny)
    difference = (np.abs(ours - theirs).max(axis=1) / largest).max(initial=0.0)
    verdict.worst["floats"] = max(verdict.worst["floats"], float(difference))
    if not difference <= FLOATS:
        verdict.problems.append(
            f"{name}: differs by {difference:.1e} of its largest value, all codes before being equal"
        )


def _codes(verdict: Verdict, operation: Operation, golden: Trace, peer: Peer, seeing: np.ndarray) -> np.ndarray:
    """Rows whose codes differ, bool [tokens]. Nothing before explains a difference, so it must be a tie."""
    name = operation.writes["codes"]
    ours, theirs = golden[name].astype(np.int64), peer.arrays[name].astype(np.int64)
    unequal = (ours != theirs) & seeing[:, None]
    distance = _from_tie(golden[operation.reads["x"]], golden[operation.writes["scale"]], ours, theirs)[unequal]
    verdict.ties += distance.tolist()
    verdict.tied_rows += int(unequal.any(axis=1).sum())
    if (np.abs(ours - theirs)[unequal] > 1).any() or (distance > TIE).any():
        verdict.problems.append(f"{name}: {unequal.sum()} codes differ, up to {distance.max():.1e} from a tie")
    return unequal.any(axis=1)


def _from_tie(x: np.ndarray, scale: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """How far x * s lies from the midpoint of the two codes, in codes."""
    return np.abs(x.astype(np.float64) * scale[:, None] - (ours.astype(np.float64) + theirs) / 2)


def follow_ties(weights: ModelWeights, config: ModelConfig, peer: Peer) -> tuple[Trace, int]:
    """Our pass with the peer's code wherever the two differ by one at a tie; and how many such codes there were."""
    names = (operation.writes["codes"] for operation in operations(config) if operation.kind == "quantize")
    taken = 0

    def quantise(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal taken
        ours, scale = absmax_int8(x)
        theirs = peer.arrays[next(names)]
        tie = (np.abs(ours.astype(int) - theirs) == 1) & (_from_tie(x, scale, ours, theirs) <= TIE)
        taken += int(tie.sum())
        return np.where(tie, theirs, ours), scale

    trace = Trace()
    with mock.patch("tritgold.model.absmax_int8", quantise):
        forward(peer.tokens, weights, config, trace=trace)
    return trace, taken
