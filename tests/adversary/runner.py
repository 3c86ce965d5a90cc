"""Runs entries through the ``tritgold`` command, each in a process and a scratch folder of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from registry import FOLDER, Entry

REPOSITORY = FOLDER.parents[1]
OPTIONS = ("--no-speed", "--no-diagnose")
OUTCOMES = {"right": ("passes", "ACCUSED"), "faulty": ("caught", "MISSED"), "cheats": ("caught", "EXIT 0")}


@dataclass(frozen=True)
class Outcome:
    """What became of one entry. code: of the command, negative for a signal, 124: time was up. good: as expected."""

    name: str
    group: str
    kind: str
    what: str
    unseen: str
    code: int
    seconds: float
    good: bool
    verdict: str
    said: str


def judged(entry: Entry, code: int) -> tuple[bool, str]:
    """Whether this exit code is right for the entry, and the word for it.

    A right engine must conform (0). Whatever else must not get 0, but where no input can show the difference either
    code is good. 3 (could not be judged) and 5 (nothing was checked) are not passes, and no verdict on a right engine.
    """
    if entry.group == "right":
        return code == 0, OUTCOMES["right"][code != 0]
    if entry.unseen:
        return True, "unseen" if code == 0 else "caught"
    return code != 0, OUTCOMES[entry.group][code == 0]


def command(entry: Entry, model: Path) -> list[str]:
    tritgold = Path(sysconfig.get_path("scripts")) / "tritgold"
    engine = f"adversary_engines:{entry.name}"
    return [str(tritgold), "check", "--engine", engine, "--model", str(model), *OPTIONS, *entry.options]


def environment(scratch: Path) -> dict[str, str]:
    """Ours on the path, and home, cache and temporary files of its own: a cheat finds nobody else's."""
    given = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "HOME", "XDG_CACHE_HOME", "TMPDIR")}
    sources = [str(REPOSITORY / part) for part in ("reference", "accelerated", "conformance")]
    own = {"HOME": "home", "XDG_CACHE_HOME": "cache", "TMPDIR": "tmp"}
    for folder in own.values():
        (scratch / folder).mkdir()
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join([*sources, str(FOLDER)])
    return given | {k: str(scratch / v) for k, v in own.items()} | threads | {"PYTHONPATH": path}


def write_model(name: str, folder: Path) -> None:
    """A scratch copy of an embedded model: entries may damage it."""
    if name in ("kjv-ar", "kjv-dlm"):
        shutil.copytree(REPOSITORY / "reference" / "tritgold" / "golden" / name, folder)
        return
    sources = str(REPOSITORY / "reference")
    more = [] if name == "seeded" else [name]
    subprocess.run(
        [sys.executable, "-m", "tritgold.golden", str(folder), *more],
        check=True,
        env=os.environ | {"PYTHONPATH": sources},
    )


def run_entry(entry: Entry, models: Path, limit: float = 300) -> Outcome:
    """Judge one entry. models: a folder that keeps the models from one entry to the next."""
    kept = models / entry.model
    if not kept.exists():
        write_model(entry.model, kept)
    with tempfile.TemporaryDirectory(prefix="tritgold-adversary-") as folder:
        scratch = Path(folder)
        shutil.copytree(kept, scratch / "model")
        work = scratch / "work"
        work.mkdir()
        for name, text in entry.files.items():
            (work / name).write_text(text)
        began = time.monotonic()
        code, said = _finished(command(entry, scratch / "model"), work, environment(scratch), limit)
        seconds = round(time.monotonic() - began, 1)
    good, verdict = judged(entry, code)
    e = entry
    return Outcome(e.name, e.group, e.kind, e.what, e.unseen, code, seconds, good, verdict, said)


def _finished(arguments: list[str], cwd: Path, env: dict[str, str], limit: float) -> tuple[int, str]:
    """The exit code, and the last lines that were printed. The whole group is ended when time is up."""
    process = subprocess.Popen(
        arguments, cwd=cwd, env=env, text=True, errors="replace", stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        code = 124
    return code, " | ".join(line.strip() for line in printed.strip().splitlines()[-3:])[-400:]


class Journal:
    """Outcomes on disk, one JSON object a line, so that a run that was ended goes on where it stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    outcome = Outcome(**json.loads(line))
                except (ValueError, TypeError):
                    continue  # a line that an ended run left unfinished
                self.outcomes[outcome.name] = outcome

    def add(self, outcome: Outcome) -> None:
        self.outcomes[outcome.name] = outcome
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")

    def of(self, names: Iterable[str]) -> list[Outcome]:
        return [self.outcomes[name] for name in names if name in self.outcomes]
