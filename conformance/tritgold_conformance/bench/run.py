"""Runs a benchmark: for each thread count one process for the engine and one for each peer, which work in turn.

Every round measures all of them: if the machine slows down for a minute, all sides of that round slow down, and their
ratio stays.
"""

from tritgold.config import ModelConfig
from tritgold_conformance.bench import memory
from tritgold_conformance.bench.models import Model
from tritgold_conformance.bench.peer_files import PeerFiles, for_llama_cpp, for_transformers
from tritgold_conformance.bench.peer_names import TRANSFORMERS, peer
from tritgold_conformance.bench.plan import Plan
from tritgold_conformance.bench.processes import require_peers
from tritgold_conformance.bench.results import BenchResults
from tritgold_conformance.bench.synthetic import Say, cache_folder, synthetic_model
from tritgold_conformance.bench.thread_run import ThreadRun
from tritgold_conformance.bench.throughput import add_scaling


def run(
    plan: Plan,
    model: Model | None,
    matrices: list[tuple[int, int]],
    say: Say = lambda _: None,
    found: BenchResults | None = None,
    config: ModelConfig | None = None,
) -> BenchResults:
    """Measure all rows of the plan.

    model: None if no row opens one. matrices: sizes [out, in] for the rows of a matrix. config: sizes of a model
    without its file. found: filled while measuring, so that a run that is stopped keeps what was measured by then.
    Raises what ``check`` raises, and EngineError if a process ends by itself.
    """
    found = BenchResults() if found is None else found
    files = dict[str, PeerFiles]()
    if model is None:
        memory.require_memory({"bandwidth": 2 * plan.bandwidth_size}, "free some memory, or use a machine with more")
    else:
        size = sum(path.stat().st_size for path in [model.path] if path.is_file())
        check(plan, model.config, size)
        files = {text: _files(text, model, say) for text in plan.peers}
    for threads in plan.threads:
        ThreadRun(plan, model, matrices, files, threads, found, say, config).run()
    add_scaling(found.results)
    return found


def check(plan: Plan, config: ModelConfig, file_size: int) -> None:
    """Check that a model can be measured, before it is written or opened.

    Raises MissingDependencyError for a peer that is not installed, ContextError for more positions than the model has,
    EngineError ``memory`` for more bytes than the machine has free. file_size: bytes that llama.cpp will map.
    """
    require_peers(plan.peers)
    plan.require_context(config)
    positions = plan.capacity()
    need = {plan.engine: memory.engine_bytes(config, positions), "bandwidth": 2 * plan.bandwidth_size}
    if "serve" in plan.rows:
        need["serve"] = need[plan.engine]
    if "start" in plan.rows:  # a second process, next to the one that is timed
        need["start"] = need[plan.engine]
    named = map(peer, plan.peers)
    need |= {one.label: memory.peer_bytes(one.name, config, positions, file_size) for one in named}
    memory.require_memory(need)


def _files(text: str, model: Model, say: Say) -> PeerFiles:
    """The files of a peer. transformers is not judged here, so it has no file for that."""
    named = peer(text)
    if named.name == TRANSFORMERS:
        return PeerFiles(for_transformers(model.path, model.name, say), None)
    timed = for_llama_cpp(model.path, model.name, named, say)
    judged = model.judged if model.for_peers is None else synthetic_model(model.for_peers, cache_folder(), say)
    return PeerFiles(timed, for_llama_cpp(judged, judged.stem, named, say))
