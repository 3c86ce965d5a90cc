"""One case folder: opened, run, and put before the judge. Shared by the recorded cases, the live run and the survey."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peer_trace import Peer, recorded

from tritgold.checkpoint import open_checkpoint
from tritgold.graph import trace_names
from tritgold.trace import Trace
from tritgold.trace_names import counterpart
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.free_running import FreeRunning, compare_traces
from tritgold_conformance.comparing.logits import LogitsVerdict, judge_logits
from tritgold_conformance.comparing.ties import BrokenTie, follow_ties
from tritgold_conformance.golden.run import GoldenRun

TIED_ROWS = 0.02  # of all rows that are quantised; survey.py: 4 of 320 were the most


@dataclass(frozen=True, eq=False)
class Judged:
    """followed: our trace with the peer's codes at ``ties``; the peer's is held against it in two walks.

    whole: codes, scales and logits, every row. floats: all else, the rows that were kept. by_search: what the logits
    alone say.
    """

    golden: GoldenRun
    peer: Peer
    provenance: dict[str, Any]
    followed: Trace
    ties: list[BrokenTie]
    whole: FreeRunning
    floats: FreeRunning
    by_search: LogitsVerdict

    @property
    def first_wrong(self) -> Comparison | None:
        """In execution order."""
        wrong = [walk.divergence for walk in (self.whole, self.floats) if walk.divergence is not None]
        return min(wrong, key=lambda comparison: list(self.followed.arrays).index(comparison.name), default=None)


def judge(folder: Path) -> Judged:
    """Open the checkpoint in ``folder``, run the peer's tokens, judge."""
    peer = Peer.load(folder / "peer.safetensors")
    provenance = json.loads((folder / "provenance.json").read_text())
    return judge_peer(GoldenRun.of(open_checkpoint(folder / "checkpoint"), peer.tokens.tolist()), peer, provenance)


def judge_peer(golden: GoldenRun, peer: Peer, provenance: dict[str, Any]) -> Judged:
    """The same with a golden run and a peer at hand, either of which may be wrong."""
    followed, ties = follow_ties(golden, peer.whole)
    kept = {name: array[peer.rows] for name, array in followed.arrays.items() if name in peer.floats}
    whole = compare_traces(followed.arrays, peer.whole, len(peer.tokens))
    floats = compare_traces(kept, peer.floats, len(peer.rows))
    by_search = judge_logits("prefill", golden, peer.logits)
    return Judged(golden, peer, provenance, followed, ties, whole, floats, by_search)


def assert_agrees(judged: Judged) -> None:
    """The whole claim. Raises AssertionError with a line for whatever contradicts it, the first wrong array first."""
    config, peer = judged.golden.checkpoint.config, judged.peer
    ours = recorded(trace_names(config))
    found = [f"{name}: not in the peer" for name in ours if name not in peer.arrays]
    found += [f"{name}: in the peer, not in our graph" for name in sorted(peer.arrays.keys() - set(ours))]
    if wrong := judged.first_wrong:
        values = f"; {wrong.engine} for {wrong.golden} at {wrong.worst}" if wrong.worst else ""
        found.append(f"{wrong.name}: {wrong.what}{values}; {wrong.why}")
    if judged.whole.ties:
        found.append(f"{judged.whole.ties[0].name}: differs at ties that were not followed")
    tied, rows = {(t.name, t.position) for t in judged.ties}, sum(n.endswith(".codes") for n in ours) * len(peer.tokens)
    if len(tied) > TIED_ROWS * rows:
        found.append(f"ties: in {len(tied)} of {rows} quantised rows")
    if not judged.by_search.passed:
        found.append(f"logits alone: {judged.by_search.problem}")
    found += [f"logits alone: {tie} is not among the codes" for tie in set(judged.by_search.ties) - set(judged.ties)]
    if trits_digests(judged.golden) != judged.provenance["trits_sha256"]:
        found.append("trits: others than the peer's")
    assert not found, "\n".join(found)


def trits_digests(golden: GoldenRun) -> dict[str, str]:
    """SHA-256 of every linear's trits as int8, under transformers' module names."""
    return {
        counterpart(f"{name}.out").hf.removesuffix(" output"): hashlib.sha256(w.ternary().trits.tobytes()).hexdigest()
        for name, w in golden.checkpoint.weights.linears()
    }
