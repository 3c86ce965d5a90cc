"""The processes of a benchmark: one for the engine and one for each peer, each on its own number of processors."""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tritgold.errors import MissingDependencyError
from tritgold_conformance.bench.json_rpc import Worker
from tritgold_conformance.bench.peer_names import TRANSFORMERS
from tritgold_conformance.bench.peer_names import peer as named

BINDING = "TRITGOLD_BENCH_BINDING"  # environment variable: one of plan.BINDINGS
PEERS_PYTHON = "TRITGOLD_PEERS_PYTHON"
_HERE = Path(__file__).parent


def require_peers(peers: tuple[str, ...]) -> None:
    """Raises MissingDependencyError for a peer that is not installed."""
    wheel = any(one.name == "llama.cpp" and one.program is None for one in map(named, peers))
    if wheel and importlib.util.find_spec("xllamacpp") is None:
        hint = "pip install 'tritgold[peers]'"
        raise MissingDependencyError(
            "the peer llama.cpp needs xllamacpp", kind="missing-dependency", thing="xllamacpp", hint=hint
        )
    if TRANSFORMERS in peers and not os.environ.get(PEERS_PYTHON):
        hint = f"set {PEERS_PYTHON} to a Python that has torch, transformers and accelerate; make peers makes one"
        raise MissingDependencyError(
            "the peer transformers runs in another Python", kind="missing-dependency", thing=PEERS_PYTHON, hint=hint
        )


def engine_process(
    spec: str, threads: int, cache: str | None = None, timed: bool = True, binding: str = "first", devices: int = 1
) -> Worker:
    """A process in which the engine is timed, or else judged: only then the user's compiled programs are used.

    cache: a folder in which a timed process keeps compiled programs and packed weights. binding: of its threads, one
    of plan.BINDINGS. devices: of the engine xla.
    """
    command = [sys.executable, "-m", "tritgold_conformance.bench.worker", spec, str(threads), str(devices)]
    return Worker(spec, command, {**environment(threads, cache, timed), BINDING: binding})


def serving_process(engine: str, threads: int) -> Worker:
    """A process in which ``tritgold serve`` runs."""
    command = [sys.executable, "-m", "tritgold_conformance.commands.serve_worker", str(threads)]
    return Worker(f"{engine}, served", command, environment(threads))


def peer_process(peer: str, threads: int) -> Worker:
    """A process in which a peer is judged or timed: llama.cpp and its forks in this Python or as its children,
    transformers in the Python of TRITGOLD_PEERS_PYTHON. peer: as ``--peer`` takes it.
    """
    given = environment(threads)
    command = [sys.executable, "-m", "tritgold_conformance.bench.worker_llama", str(threads), peer]
    if peer == TRANSFORMERS:
        given.pop("PYTHONPATH")  # another Python, with its own packages
        command = [os.environ[PEERS_PYTHON], str(_HERE / "worker_transformers.py"), str(threads)]
    return Worker(named(peer).label, command, given)


def judged_peer(peer: str, threads: int, file: Path | None, say: Callable[[str], None]) -> tuple[bool | None, str]:
    """(passed, description) of a peer on a file, judged in its own process. file None: not judged, passed is None."""
    if file is None:
        return None, "a peer, timed as it is"
    say(f"judging {named(peer).label}")
    with peer_process(peer, threads) as judging:
        verdict = judging.ask("judge", path=str(file))
    return verdict["passed"], f"a peer; {verdict['text']}"


def use_processors(threads: int, binding: str = "first") -> None:
    """Hold this process to so many processors, where the system can. binding: one of plan.BINDINGS."""
    if hasattr(os, "sched_setaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        chosen = {"last": usable[-threads:], "free": usable}.get(binding, usable[:threads])
        os.sched_setaffinity(0, chosen)


def environment(threads: int, cache: str | None = None, timed: bool = True) -> dict[str, str]:
    """The environment of a process that uses ``threads`` threads.

    Most libraries count the processors of the process (``use_processors``); XLA also reads NPROC, BLAS and OpenMP
    their own variables. cache: replaces the user's XDG_CACHE_HOME; without it a timed process keeps nothing, so that
    a first call always compiles.
    """
    count = str(threads)
    names = ("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    found = {**os.environ, **dict.fromkeys(names, count)}
    found["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    # The user's folder may hold programs that must be compiled now, and mixes those of different thread counts.
    found.pop("JAX_COMPILATION_CACHE_DIR", None)
    if timed:
        found["TRITGOLD_CACHE"] = "0"
    if cache is not None:
        found |= {"XDG_CACHE_HOME": cache, "TRITGOLD_CACHE": "1", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    return found
