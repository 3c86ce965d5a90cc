"""One case folder: opened, run and compared. Shared by the checked-in fixtures, the live run and the survey."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agreement import Verdict, compare, follow_ties
from peer_trace import Peer

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.model import forward
from tritgold.trace import Trace


@dataclass(frozen=True, eq=False)
class Judged:
    """verdict: our pass against the peer's. followed: the same with the peer's codes taken at ``taken`` ties."""

    checkpoint: Checkpoint
    peer: Peer
    provenance: dict[str, Any]
    golden: Trace
    verdict: Verdict
    followed: Verdict
    taken: int


def judge(folder: Path) -> Judged:
    """Open the checkpoint in ``folder``, run the peer's tokens, compare."""
    checkpoint = open_checkpoint(folder / "checkpoint")
    peer = Peer.load(folder / "peer.safetensors")
    golden = Trace()
    forward(peer.tokens, checkpoint.weights, checkpoint.config, trace=golden)
    verdict = compare(golden, checkpoint.config, peer)
    trace, taken = follow_ties(checkpoint.weights, checkpoint.config, peer)
    followed = compare(trace, checkpoint.config, peer)
    provenance = json.loads((folder / "provenance.json").read_text())
    return Judged(checkpoint, peer, provenance, golden, verdict, followed, taken)


def assert_agrees(judged: Judged) -> None:
    """The whole claim: same trits, nothing unexplained, and the ties are the only difference."""
    assert judged.verdict.problems == []
    assert judged.followed.problems == []
    # With the tied codes taken from the peer no row differs any more, and no position is excused.
    assert judged.followed.far == []
    assert judged.followed.tied == {}
    assert (judged.taken > 0) == bool(judged.verdict.tied)
    assert trits_digests(judged) == judged.provenance["trits_sha256"]


def trits_digests(judged: Judged) -> dict[str, str]:
    """SHA-256 of every linear's trits as int8, under transformers' module names."""
    attention = dict.fromkeys("qkvo", "self_attn")
    digests = {}
    for name, weight in judged.checkpoint.weights.linears():
        at, _, kind = name.rpartition(".")
        module = f"model.{at}.{attention.get(kind, 'mlp')}.{kind}_proj"
        digests[module] = hashlib.sha256(weight.ternary().trits.tobytes()).hexdigest()
    return digests
