"""python tests/fuzz: damaged checkpoints, as many as asked for, on as many processes as there are processors.

make fuzz CASES=2000000                                 # the longer run
python tests/fuzz --only gguf --seed 158 --case 1234    # one case again, its files kept
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

# Run as a command, outside pytest; hence the late imports.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "reference" / "helpers")]

from fuzzing import SEED, BadEndError, damage_of, limit_memory, run_case, run_subject  # noqa: E402
from subject import Subject  # noqa: E402
from subjects import subjects  # noqa: E402


def main() -> int:
    """0 where every case ended well, 1 where one did not: stderr says which, and how to repeat it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=50_000, help="of all subjects together (default 50000)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", help="one subject")
    parser.add_argument("--case", type=int, help="one case again; its files are kept and named")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="outcomes by subject, as JSON")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)  # which of the jobs this process is
    asked = parser.parse_args()
    if asked.case is not None and asked.only is None:
        parser.error("--case needs --only")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the folder below is removed
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="tritgold-fuzz-") as folder:
        if asked.case is not None:
            return _one(asked, Path(folder))
        if asked.part is not None:
            return _part(asked, Path(folder))
    return _all(asked)


def _chosen(asked: argparse.Namespace, folder: Path) -> list[Subject]:
    """The subjects asked for, made in the folder."""
    made = folder / "made"
    made.mkdir()
    found = [s for s in subjects(made) if asked.only in (None, s.name)]
    if not found:
        raise SystemExit(f"no such subject: {asked.only}")
    return found


def _part(asked: argparse.Namespace, folder: Path) -> int:
    """Every ``jobs``-th case, beginning with the ``part``-th; outcomes as JSON on stdout."""
    chosen = _chosen(asked, folder)
    limit_memory()
    whole = sum(subject.share for subject in chosen)
    outcomes, failed = {}, False
    for subject in chosen:
        count = -(-asked.cases * subject.share // whole)
        try:
            outcomes[subject.name] = run_subject(subject, folder, asked.seed, range(asked.part, count, asked.jobs))
        except BadEndError as failure:
            failed = True
            print(failure, file=sys.stderr)
    print(json.dumps(outcomes))
    return int(failed)


def _one(asked: argparse.Namespace, folder: Path) -> int:
    """One case in a folder of its own that stays: ``damaged`` as it was opened."""
    (subject,) = _chosen(asked, folder)
    here = Path(tempfile.mkdtemp(prefix="tritgold-case-"))
    damaged = damage_of(subject, asked.seed, asked.case)
    for name, files in (("sound", subject.files), ("damaged", {**subject.files, **damaged})):
        (here / name).mkdir()
        for file, data in files.items():
            (here / name / file).write_bytes(data)
    print(f"{here / 'damaged' / subject.opened}: changed {', '.join(damaged)}")
    print(run_case(subject, here / "sound", asked.seed, asked.case))
    return 0


def _all(asked: argparse.Namespace) -> int:
    """All cases, shared among the jobs; what they found together."""
    begin = time.perf_counter()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).parent), *sys.argv[1:]]
    command += ["--jobs", str(asked.jobs)]
    jobs = [
        subprocess.Popen(
            [*command, "--part", str(part)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        for part in range(asked.jobs)
    ]
    ended = [(*job.communicate(), job.returncode) for job in jobs]
    failed = [(err, code) for _, err, code in ended if code]
    for err, code in failed:
        print(err or f"ended with {code}", file=sys.stderr)
    if failed:
        return 1
    total: dict[str, Counter[str]] = {}
    for out, _, _ in ended:
        for name, counts in json.loads(out).items():
            total.setdefault(name, Counter()).update(counts)
    if asked.json:
        print(json.dumps({"seed": asked.seed, "outcomes": total}))
        return 0
    for name, counts in total.items():
        most = ", ".join(f"{kind} {count}" for kind, count in counts.most_common(12))
        print(f"{name}: {counts.total():,} cases, {len(counts)} outcomes: {most}")
    took = time.perf_counter() - begin
    cases = sum(counts.total() for counts in total.values())
    print(f"{cases:,} cases in {took:.0f} s: every one a typed error or a sound model; seed {asked.seed}")
    return 0


sys.exit(main())
