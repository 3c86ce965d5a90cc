"""The processes of a benchmark: one for the engine and one for each peer, each held to so many processors."""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tritgold.errors import MissingDependencyError
from tritgold_conformance.bench.json_rpc import Worker
from tritgold_conformance.bench.peer_names import peer as named
from tritgold_conformance.bench.worker import BINDING

PEERS_PYTHON = "TRITGOLD_PEERS_PYTHON"
_HERE = Path(__file__).parent


def require_peers(peers: tuple[str, ...]) -> None:
    """Raises MissingDependencyError for a peer that is not there."""
    wheel = any(one.name == "llama.cpp" and one.program is None for one in map(named, peers))
    if wheel and importlib.util.find_spec("xllamacpp") is None:
        hint = "pip install 'tritgold[peers]'"
        raise MissingDependencyError(
            "the peer llama.cpp needs xllamacpp", kind="missing-dependency", thing="xllamacpp", hint=hint
        )
    if "transformers" in peers and not os.environ.get(PEERS_PYTHON):
        hint = f"set {PEERS_PYTHON} to a Python that has torch, transformers and accelerate; make peers makes one"
        raise MissingDependencyError(
            "the peer transformers runs in another Python", kind="missing-dependency", thing=PEERS_PYTHON, hint=hint
        )


def engine_process(
    spec: str, threads: int, cache: str | None = None, timed: bool = True, binding: str = "first", devices: int = 1
) -> Worker:
    """A process in which the engine is timed, or only judged: then our own folder of compiled programs is used.

    cache: a folder for what a timed one keeps: compiled programs and packed weights. binding: of its threads, one of
    BINDINGS. devices: of the engine xla.
    """
    command = [sys.executable, "-m", "tritgold_conformance.bench.worker", spec, str(threads), str(devices)]
    return Worker(spec, command, {**environment(threads, cache, timed), BINDING: binding})


def peer_process(peer: str, threads: int) -> Worker:
    """A process in which a peer is judged or timed: llama.cpp in this Python, a program as a child of it, transformers
    in the Python of TRITGOLD_PEERS_PYTHON. peer: as ``--peer`` takes it.
    """
    given = environment(threads)
    if named(peer).program is not None:
        command = [sys.executable, "-m", "tritgold_conformance.bench.worker_llama_program", str(threads), peer]
        return Worker(named(peer).label, command, given)
    if named(peer).name == "llama.cpp":
        command = [sys.executable, "-m", "tritgold_conformance.bench.worker_llama_cpp", str(threads)]
        return Worker(named(peer).label, command, given)
    given.pop("PYTHONPATH")  # another Python, with packages of its own
    return Worker(peer, [os.environ[PEERS_PYTHON], str(_HERE / "worker_transformers.py"), str(threads)], given)


def judged_peer(peer: str, threads: int, file: Path | None, say: Callable[[str], None]) -> tuple[bool | None, str]:
    """Whether a peer computes the model in a file, in words; in a process of its own. None: it is not judged here."""
    if file is None:
        return None, "a peer, timed as it is"
    say(f"judging {named(peer).label}")
    with peer_process(peer, threads) as judging:
        verdict = judging.ask("judge", path=str(file))
    return verdict["passed"], f"a peer; {verdict['text']}"


def environment(threads: int, cache: str | None = None, timed: bool = True) -> dict[str, str]:
    """The environment of a process that is to use so many threads.

    The processors that the child holds itself to decide for most libraries; NPROC says it to XLA again, and BLAS and
    OpenMP have variables of their own. cache: stands for the user's XDG_CACHE_HOME; without it a timed process keeps
    nothing, so that a first call always compiles.
    """
    count = str(threads)
    names = ("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    found = {**os.environ, **dict.fromkeys(names, count)}
    found["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    # The user's may hold programs that are to be compiled now; nor does it keep those of other thread counts apart.
    found.pop("JAX_COMPILATION_CACHE_DIR", None)
    if timed:
        found["TRITGOLD_CACHE"] = "0"
    if cache is not None:
        found |= {"XDG_CACHE_HOME": cache, "TRITGOLD_CACHE": "1", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    return found
