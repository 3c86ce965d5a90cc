"""How far transformers in float32 is from the golden model, over many seeds: what the bounds in agreement.py rest on.

    python survey.py PEERS_PYTHON [--seeds 50]

Prints a table a family and a histogram. Exit code 1 where a model has a difference that no tie explains.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from judging import Judged, assert_agrees, judge

from tritgold.graph import operations

SCRIPT = Path(__file__).with_name("make_fixtures.py")
BATCH = 10  # seeds a process: starting torch costs more than a model


def activation_noise(judged: Judged) -> list[tuple[str, np.ndarray]]:
    """|our x * s - the peer's|, in codes, of every quantiser whose input is traced, in rows that have met no tie."""
    noise = []
    met = np.zeros(len(judged.peer.tokens), bool)
    for operation in operations(judged.checkpoint.config):
        if operation.kind != "quantize":
            continue
        codes, scale, x = operation.writes["codes"], operation.writes["scale"], operation.reads["x"]
        met |= np.logical_or.accumulate((judged.golden[codes] != judged.peer.arrays[codes]).any(axis=1))
        if x in judged.peer.arrays:
            ours, theirs = (a[x].astype(np.float64) * a[scale][:, None] for a in (judged.golden, judged.peer.arrays))
            noise.append((operation.name, np.abs(ours - theirs)[~met].ravel()))
    return noise


def logit_distance(judged: Judged) -> np.ndarray:
    """Of every position, as a share of the largest logit."""
    return np.abs(judged.golden["logits"] - judged.peer.logits).max(axis=1) / np.abs(judged.peer.logits).max()


def main() -> int:
    """Generate, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="an interpreter that has torch and transformers")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--verbose", action="store_true", help="list every model that meets a tie")
    arguments = parser.parse_args()
    results: dict[str, list[Judged]] = defaultdict(list)
    noise: dict[str, list[np.ndarray]] = defaultdict(list)
    unexplained = 0
    for first in range(1, arguments.seeds + 1, BATCH):
        last = min(first + BATCH - 1, arguments.seeds)
        with tempfile.TemporaryDirectory() as folder:
            command = [arguments.python, SCRIPT, folder, "--offsets", str(first), str(last), "--all-rows"]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            for case in sorted(Path(folder).iterdir()):
                judged = judge(case)
                results[judged.provenance["case"]].append(judged)
                for name, values in activation_noise(judged):
                    where = "layer 0 attn_in: one norm" if name == "layers.0.attn_in" else "behind more than one norm"
                    noise[where].append(values)
                try:
                    assert_agrees(judged)
                except AssertionError as error:
                    unexplained += 1
                    print(f"{case.name}: {error}", file=sys.stderr)
                if judged.verdict.tied and arguments.verbose:
                    print(case.name, judged.verdict.far, judged.verdict.tied, judged.verdict.ties, file=sys.stderr)
    print("case | models | with ties | tied codes | positions > 2e-5 (all, most) | tie distance", end=" | ")
    print("logits elsewhere | after following | floats")
    for case, family in results.items():
        verdicts = [j.verdict for j in family]
        far = [len(v.far) for v in verdicts]
        ties = [d for v in verdicts for d in v.ties]
        followed = max(j.followed.worst["logits"] for j in family)
        print(f"{case} | {len(family)} | {sum(bool(v.tied) for v in verdicts)} | {len(ties)}", end=" | ")
        print(f"{sum(far)} of {40 * len(far)}, {max(far)} | {max(ties, default=0):.1e}", end=" | ")
        worst = {key: max(v.worst[key] for v in verdicts) for key in ("logits", "floats")}
        print(f"{worst['logits']:.1e} | {followed:.1e} | {worst['floats']:.1e}")
    everything = [j for family in results.values() for j in family]
    far = np.array([len(j.verdict.far) for j in everything])
    bins = [0, 1, 2, 4, 8, 16, 32, 41]
    print("positions > 2e-5 in a model:", dict(zip(bins[:-1], np.histogram(far, bins)[0].tolist(), strict=True)))
    print("tied rows in a model, at most:", max(j.verdict.tied_rows for j in everything))
    for where, parts in noise.items():
        values = np.concatenate(parts)
        print(f"noise of x * s, {where}: {values.size} codes", end=", ")
        print(f"median {np.median(values):.1e}, 99.9 % {np.quantile(values, 0.999):.1e}, max {values.max():.1e}")
    distances = np.concatenate([logit_distance(j) for j in everything])
    for bound in (1e-6, 3e-6, 1e-5, 2e-5, 1e-4, 1e-3):
        print(f"positions above {bound:.0e}: {(distances > bound).sum()} of {distances.size}")
    return unexplained > 0


if __name__ == "__main__":
    sys.exit(main())
