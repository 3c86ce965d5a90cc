"""One engine after the other: installed, judged on each of its cases, a report written. What fails is a row."""

import argparse
import json
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from scoreboard.environments import Place, UnavailableError, place
from scoreboard.limited import Ended, run_limited
from scoreboard.manifest import FILE, Case, EngineEntry, manifest
from scoreboard.model_files import model_of
from scoreboard.results import EngineReport, Exam, Row, Status, file_name, read, write
from scoreboard.servers import way_in
from scoreboard.verdicts import REFUSED, row_of, speeds, without_folders
from tritgold.errors import TritgoldError
from tritgold.trace import versions
from tritgold_conformance.engines.peers import PYTHON

TOKENS, TIMED_TOKENS = 16, 40  # of the judged text
QUESTIONS = 4  # of each task of the exam
EXAM, TIMED = "skills-ar", "kjv-ar"  # models whose cases are asked more
TRITGOLD = (sys.executable, "-m", "tritgold_conformance")
Run = Callable[[list[str]], Ended]


class Limits(NamedTuple):
    """Of one case: seconds, and MiB of all its processes. beside: whether the JAX engine is timed on the same file."""

    seconds: float = 600.0
    mib: float = 8192.0
    beside: bool = True


LIMITS = Limits()


def judged(
    engine: EngineEntry,
    version: str,
    root: Path,
    limits: Limits = LIMITS,
    on_row: Callable[[EngineReport], object] = lambda _: None,
    chosen: Callable[[Case], bool] = lambda _: True,
) -> EngineReport:
    """The report of one version. root: folder of the environments. Never raises for what the engine does.

    on_row: gets the report after each case, so that a run that is interrupted leaves what it has found. chosen: which
    cases are judged.
    """
    report = EngineReport(
        engine=engine.name,
        version=version,
        languages=engine.languages,
        source=engine.source,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=versions(),
        unavailable=engine.unavailable,
    )
    if engine.unavailable:
        return report
    try:
        where = place(engine, version, root)
    except UnavailableError as error:
        report.unavailable = without_folders(str(error))
        return report
    for case in engine.cases:
        if not chosen(case):
            continue
        row, said = judged_case(engine, where, case, limits)
        print(
            f"{engine.name} {version}: {case.format} {case.model}: {row.status} {row.why}", file=sys.stderr, flush=True
        )
        report.rows.append(row)
        report.said |= said
        on_row(report)
    return report


def _installed(engine: EngineEntry, version: str, root: Path) -> str:
    try:
        return engine.unavailable or str(place(engine, version, root).folder)
    except UnavailableError as error:
        return str(error)


def judged_case(engine: EngineEntry, where: Place, case: Case, limits: Limits = LIMITS) -> tuple[Row, dict[str, str]]:
    """The row of one case, and the versions that the engine reported."""
    began, environment = time.monotonic(), {PYTHON: where.values["python"]}

    def run(words: list[str]) -> Ended:
        return run_limited([*TRITGOLD, *words], environment, limits.seconds, limits.mib)

    def without_verdict(status: Status, why: str, command: str = "") -> tuple[Row, dict[str, str]]:
        took = round(time.monotonic() - began, 1)
        return Row(case=case, status=status, why=why, seconds=took, mib=0, exit_code=None, command=command), {}

    with tempfile.TemporaryDirectory(prefix="tritgold-scoreboard-") as scratch:
        folder = Path(scratch)
        try:
            model = model_of(case, folder)
        except TritgoldError as error:
            return without_verdict("could not be judged", f"the file cannot be made: {error.message}")
        try:
            with way_in(engine, where, model, folder, case.served, environment) as way:
                way = f"{way} {case.options}".rstrip()
                words = check_words(way, model, case, limits.seconds)
                row, said = row_of(case, run(words), where.hidden(shlex.join(["tritgold", *words]), model=str(model)))
                return asked_more(row, way, model, run, limits.beside), said
        except UnavailableError as error:
            why = without_folders(str(error))
            words = [where.filled(word, model="MODEL", port="PORT") for word in engine.server]
            status: Status = "refuses the file" if REFUSED.search(why) else "crashes"
            return without_verdict(status, why, where.hidden(shlex.join(words)))


def check_words(way: str, model: Path, case: Case, seconds: float) -> list[str]:
    """The judge's command. Its own limit for the engine is shorter, so that an engine that hangs is named as such."""
    policy = ["--policy", case.policy] if case.policy else []
    speed = ["--tokens", str(TIMED_TOKENS)] if case.model == TIMED else ["--tokens", str(TOKENS), "--no-speed"]
    limit = ["--timeout", str(max(1, int(seconds * 0.8)))]
    return ["check", "--engine", way, "--model", str(model), "--mode", case.mode, *policy, *limit, *speed, "--quick",
            "--json"]  # fmt: skip


def asked_more(row: Row, way: str, model: Path, run: Run, beside: bool) -> Row:
    """The row with an exam, or with speeds, if its model is for these and the engine opened the file."""
    if row.case.model == EXAM and row.status in ("conforms", "does not conform", "could not be judged"):
        row.exam = exam(way, model, run)
    if row.speed is not None and beside:
        words = ["check", "--engine", "xla", "--model", str(model), "--tokens", str(TIMED_TOKENS), "--quick", "--json"]
        jax = speeds(_printed(run(words)))
        if jax is not None:
            row.speed.jax_prefill, row.speed.jax_decode = jax.prefill, jax.decode
    return row


def exam(way: str, model: Path, run: Run) -> Exam | None:
    """How many answers are right: of the engine, and of the golden model on the same file."""
    right, of = [], 0
    for engine in (way, "reference"):
        words = ["eval", str(model), "--engine", engine, "--questions", str(QUESTIONS), "--json"]
        found = _printed(run(words))
        everything = [row for row in found.get("rows", []) if row["task"] == "all"]
        if not everything:
            return None
        right.append(everything[0]["right"])
        of = everything[0]["of"]
    return Exam(right=right[0], golden=right[1], of=of)


def _printed(ended: Ended) -> Mapping[str, Any]:
    try:
        found = json.loads(ended.stdout)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def merged(report: EngineReport, folder: Path) -> EngineReport:
    """With the rows of the recorded report of this version for cases that were not judged now, in its order."""
    path = folder / file_name(report.engine, report.version)
    if not (report.rows and path.exists()):
        return report
    before = read(path)
    now = {row.case: row for row in report.rows}
    rows = [now.pop(row.case, row) for row in before.rows] + list(now.values())
    return msgspec.structs.replace(report, rows=rows, said=before.said | report.said)


def main(words: list[str] | None = None) -> int:
    """The engines that are named, or all; exit code 2 for a name that is not in the manifest."""
    parser = argparse.ArgumentParser(prog="python -m scoreboard", description=__doc__)
    parser.add_argument("engine", nargs="*", help="names of the manifest; without one, all of them")
    parser.add_argument("--version", help="one of its versions; else each")
    parser.add_argument("--model", action="append", default=[], help="judge the cases on this model alone; repeatable")
    parser.add_argument(
        "--format", action="append", default=[], help="judge the cases of this format alone; repeatable"
    )
    parser.add_argument("--manifest", type=Path, default=FILE)
    parser.add_argument("--environments", type=Path, default=Path("build/scoreboard"))
    parser.add_argument("--out", type=Path, default=Path("docs/data/scoreboard"))
    parser.add_argument("--install", action="store_true", help="install the environments and judge nothing")
    parser.add_argument("--timeout", type=float, default=LIMITS.seconds, help="seconds a case")
    parser.add_argument("--memory", type=float, default=LIMITS.mib, help="MiB a case")
    parser.add_argument("--alone", action="store_true", help="do not time the JAX engine beside it")
    given = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    engines = {engine.name: engine for engine in manifest(given.manifest)}
    if unknown := [name for name in given.engine if name not in engines]:
        print(f"no such engine: {', '.join(unknown)}; there are {', '.join(engines)}", file=sys.stderr)
        return 2
    for name in given.engine or engines:
        for version in [given.version] if given.version else engines[name].versions or ["none"]:
            if given.install:
                print(
                    name, version, _installed(engines[name], version, given.environments), file=sys.stderr, flush=True
                )
                continue
            report = judged(
                engines[name],
                version,
                given.environments,
                Limits(given.timeout, given.memory, not given.alone),
                lambda found: write(merged(found, given.out), given.out),
                lambda case: (
                    case.model in (given.model or [case.model]) and case.format in (given.format or [case.format])
                ),
            )
            print(write(merged(report, given.out), given.out), file=sys.stderr, flush=True)
    return 0
