"""How far transformers in float32 is from the golden model, over many seeds: what the judge's bounds rest on.

    python survey.py PEERS_PYTHON [--seeds 50]

Prints a table a family and a histogram. Exit code 1 where a correct model is accused, by its trace or by its logits
alone.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from judging import Judged, assert_agrees, judge

from tritgold.graph import operations
from tritgold_conformance.comparing.logits import LOGIT_NOISE

SCRIPT = Path(__file__).with_name("make_fixtures.py")
BATCH = 10  # seeds a process: starting torch costs more than a model


def made(python: str, seeds: int) -> Iterator[tuple[str, Judged]]:
    """Every case with every seed, a batch of them on disk at a time."""
    for first in range(1, seeds + 1, BATCH):
        last = min(first + BATCH - 1, seeds)
        with tempfile.TemporaryDirectory() as folder:
            command = [python, SCRIPT, folder, "--offsets", str(first), str(last), "--all-rows"]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            for case in sorted(Path(folder).iterdir()):
                yield case.name, judge(case)


def accusation(judged: Judged) -> str:
    """What the judgement has against it; empty where it agrees."""
    try:
        assert_agrees(judged)
    except AssertionError as error:
        return str(error)
    return ""


def activation_noise(judged: Judged) -> Iterator[tuple[str, np.ndarray]]:
    """|our x * s - the peer's|, in codes, of every quantiser whose input is traced, ties followed."""
    ours, theirs = judged.followed.arrays, judged.peer.arrays
    for operation in operations(judged.golden.checkpoint.config):
        if operation.kind == "quantize" and (x := operation.reads["x"]) in theirs:
            scale = operation.writes["scale"]
            scaled = [side[x].astype(np.float64) * side[scale][:, None] for side in (ours, theirs)]
            yield operation.name, np.abs(scaled[0] - scaled[1]).ravel()


def far(judged: Judged) -> int:
    """Positions whose logits need a tie as explanation."""
    return sum(position.relative > LOGIT_NOISE for position in judged.by_search.positions)


COLUMNS: dict[str, Callable[[list[Judged]], object]] = {
    "models": len,
    "accused": lambda models: sum(bool(accusation(j)) for j in models),
    "by trace": lambda models: sum(j.first_wrong is not None for j in models),
    "by logits alone": lambda models: sum(not j.by_search.passed for j in models),
    "with ties": lambda models: sum(bool(j.ties) for j in models),
    "tied codes": lambda models: sum(len(j.ties) for j in models),
    "found in logits": lambda models: sum(len(j.by_search.ties) for j in models),
    "positions off": lambda models: sum(map(far, models)),
    "most": lambda models: max(map(far, models)),
    "tie distance": lambda models: f"{max((t.from_tie for j in models for t in j.ties), default=0):.1e}",
    "logits": lambda models: f"{max(p.explained for j in models for p in j.by_search.positions):.1e}",
    "scales and logits": lambda models: f"{max(j.whole.worst for j in models):.1e}",
    "floats": lambda models: f"{max(j.floats.worst for j in models):.1e}",
}


def main() -> int:
    """Generate, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="an interpreter that has torch and transformers")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--verbose", action="store_true", help="list every model that meets a tie")
    arguments = parser.parse_args()
    families: dict[str, list[Judged]] = defaultdict(list)
    noise: dict[str, list[np.ndarray]] = defaultdict(list)
    for name, judged in made(arguments.python, arguments.seeds):
        families[judged.provenance["case"]].append(judged)
        for quantizer, values in activation_noise(judged):
            where = "layer 0 attn_in: one norm" if quantizer == "layers.0.attn_in" else "after more than one norm"
            noise[where].append(values)
        if found := accusation(judged):
            print(f"{name}: {found}", file=sys.stderr)
        if judged.ties and arguments.verbose:
            print(name, far(judged), judged.ties, file=sys.stderr)
    every = [judged for models in families.values() for judged in models]
    print("case", *COLUMNS, sep=" | ")
    for case, models in {**families, "all": every}.items():
        print(case, *(column(models) for column in COLUMNS.values()), sep=" | ")

    bins = [0, 1, 2, 4, 8, 16, 32, 41]
    counts = np.histogram([far(judged) for judged in every], bins)[0].tolist()
    print("positions off in a model:", dict(zip(bins[:-1], counts, strict=True)))
    print("tied rows in a model, at most:", max(len({(t.name, t.position) for t in j.ties}) for j in every))
    for where, parts in noise.items():
        values = np.concatenate(parts)
        print(f"noise of x * s, {where}: {values.size} codes", end=", ")
        print(f"median {np.median(values):.1e}, 99.9 % {np.quantile(values, 0.999):.1e}, max {values.max():.1e}")
    distances = np.array([position.relative for judged in every for position in judged.by_search.positions])
    for bound in (1e-6, 3e-6, 1e-5, 2e-5, 1e-4, 1e-3):
        print(f"positions above {bound:.0e}: {(distances > bound).sum()} of {distances.size}")
    return any(map(accusation, every))


if __name__ == "__main__":
    sys.exit(main())
