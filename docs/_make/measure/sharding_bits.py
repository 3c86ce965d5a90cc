"""The same bits over devices and processes: hashes of logits, traces and tokens beside those of one device.

``python -m measure.sharding_bits --out docs/data/sharding-bits.json``; exit status 1 where anything differs.

A row is a model, a KV scheme and a formulation of the ternary product, over so many devices of one process, or so many
processes of one device each. All schemes and all formulations are there for every model; not in all pairs, which would
take six times as long, and the two do not touch each other. With the first way everything is asked that the engine
does, with the others a trace and steps, whose programs have every operation: compiling is what takes the time. All
numbers of devices are in one process, which starts with the most of them. Goes on where it stopped: what has been
hashed stands in ``OUT.rows``.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from measure.journal import Journal
from measure.report import lines
from tritgold_conformance.commands.launch import two_free_ports

HELPERS = Path(__file__).parents[3] / "tests/accelerated/helpers"
SCHEMA = "tritgold.sharding_bits/1"
WAYS: tuple[tuple[str, str | None], ...] = (
    ("f32", None), ("bf16", "select"), ("f16", "bit-serial"), ("fp8_e4m3", "int8-dot"), ("fp8_e5m2", "float-dot"),
    ("int8", "plain"),
)  # fmt: skip
OVER_PROCESSES = WAYS[1]
MODELS = ("llama", "kjv-ar", "kjv-dlm", "2b-two-layers")
# With biases; with norms of heads and of branches, windows and two tables of RoPE.
ARCHITECTURES = ("qwen2-bitlinear-yarn-window", "gemma3-auto-offline")
DEVICES, PROCESSES = (1, 2, 3, 4, 8), (2, 4)


class Case(NamedTuple):
    """What a row is of."""

    model: str
    way: tuple[str, str | None]
    extent: str
    devices: tuple[int, ...] = DEVICES
    processes: tuple[int, ...] = ()


def cases() -> Iterator[Case]:
    """All rows. Over processes are all models with one way, whose cache is not that of the first."""
    for model in MODELS:
        for way in WAYS:
            over = PROCESSES if way == OVER_PROCESSES else ()
            yield Case(model, way, "all" if way == WAYS[0] else "steps", processes=over)
    for model in ARCHITECTURES:
        yield Case(model, WAYS[0], "steps")


def hashes(models: list[str], ways: list[Any], devices: list[int], extent: str, processes: int = 1) -> Any:
    """{model: {way: {devices: {what: digest}}}} by the program ``sharded_hashes``. Raises RuntimeError if it fails.

    processes: so many, which share one model over ``devices`` devices; one model, one way and one number then.
    """
    asked = json.dumps({"models": models, "ways": ways, "devices": devices, "extent": extent})
    command = [sys.executable, "-W", "ignore", str(HELPERS / "sharded_hashes.py"), asked]
    folders = [str(HELPERS), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    address = f"127.0.0.1:{two_free_ports()}" if processes > 1 else ""
    seats = {"TRITGOLD_COORDINATOR": address, "TRITGOLD_PROCESSES": str(processes), "TRITGOLD_PATIENCE": "120"}
    started = [
        subprocess.Popen(
            command,
            env={**environment, **seats, "TRITGOLD_PROCESS": str(process)},
            stdout=subprocess.PIPE if process == 0 else subprocess.DEVNULL,
            stderr=subprocess.PIPE if process == 0 else subprocess.DEVNULL,
        )
        for process in range(processes)
    ]
    out, err = started[0].communicate()
    codes = [child.wait() for child in started]
    if any(codes):
        raise RuntimeError(f"exit codes {codes}: {err.decode()[-3000:]}")
    return json.loads(out)


def differing(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """What differs from one device, as (model, way, devices, what)."""
    return [
        (model, way, count, what)
        for model, ways in found.items()
        for way, counts in ways.items()
        for count, answers in counts.items()
        for what, digest in answers.items()
        if digest != counts["1"][what]
    ]


def answers(case: Case, counts: tuple[int, ...], processes: int = 1) -> dict[str, dict[str, str]]:
    """Digests of a case by the number of devices, of one process or of so many."""
    found = hashes([case.model], [list(case.way)], list(counts), case.extent, processes)
    ((by_devices),) = found[case.model].values()
    return dict(by_devices)


def row(case: Case, journal: Journal) -> dict[str, Any]:
    """Compared: what there is a hash of; alone: the hashes of one device; differing: what is not the same elsewhere."""
    counts = dict(journal.row((*case[:3], "devices"), partial(answers, case, case.devices)))
    for number in case.processes:
        of_all = journal.row((*case[:3], f"{number} processes"), partial(answers, case, (number,), number))
        counts[f"{number} processes"] = of_all[str(number)]
    alone = counts["1"]
    return {
        "model": case.model,
        "kv_cache": case.way[0],
        "formulation": case.way[1] or "chosen",
        "over": list(counts),
        "compared": list(alone),
        "alone": {what: digest[:16] for what, digest in alone.items()},
        "differing": [list(each[2:]) for each in differing({case.model: {"": counts}})],
    }


def main() -> None:
    """Make the rows that are missing; with all of them, the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", action="append", help="These alone.")
    given = parser.parse_args()
    journal, everything = Journal(given.out.with_suffix(".rows"), say=sys.stderr), list(cases())
    chosen = [case for case in everything if given.model is None or case.model in given.model]
    rows = [row(case, journal) for case in chosen]
    missing = len(everything) - len(rows)
    given.out.write_text(lines({"schema": SCHEMA, "missing": missing, "rows": rows}) + "\n", encoding="utf-8")
    if not missing:
        journal.close()
    sys.exit(any(each["differing"] for each in rows))


if __name__ == "__main__":
    main()
