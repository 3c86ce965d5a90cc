"""The benchmark itself: for each thread count a process of the engine and one of each peer, commanded in turn.

One is idle while the other is timed, and every round measures all of them: a machine that slows down for a minute
slows all sides of a round, and their ratio stays.
"""

import importlib.util
import os
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritgold.config import ModelConfig
from tritgold.errors import EngineError, MissingDependencyError
from tritgold_conformance.bench import room, worker, worker_transformers
from tritgold_conformance.bench.lines import Worker
from tritgold_conformance.bench.models import Model, for_llama_cpp, for_transformers
from tritgold_conformance.bench.plan import OF_A_PEER, Case, Plan
from tritgold_conformance.bench.results import Bandwidth, Engine, Part, Profile, Result
from tritgold_conformance.bench.synthetic import Say
from tritgold_conformance.bench.timing import Timing, paired_ratio

PEERS_PYTHON = "TRITGOLD_PEERS_PYTHON"


@dataclass
class Found:
    """What has been measured so far."""

    engines: list[Engine] = field(default_factory=list)
    bandwidth: list[Bandwidth] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)


def run(plan: Plan, model: Model | None, matrices: list[tuple[int, int]], say: Say = lambda _: None) -> Found:
    """Measure. model: None for the rows of a matrix alone; matrices: sizes [out, in] for those.

    Raises EngineError ``memory`` before anything is opened, MissingDependencyError for a peer that is not there,
    EngineError where a process ends by itself.
    """
    found = Found()
    files = _peer_files(plan, model, say)
    if model is not None:
        plan.require_context(model.config, model.path)
        room.require_memory(_memory(plan, model, files))
    for threads in plan.threads:
        _OneCount(plan, model, matrices, files, threads, found, say).run()
    _scaling(found.results)
    return found


def _peer_files(plan: Plan, model: Model | None, say: Say) -> dict[str, Path]:
    """What each peer opens. Raises MissingDependencyError for a peer that is not there."""
    if not plan.peers or model is None:
        return {}
    if "llama.cpp" in plan.peers and importlib.util.find_spec("xllamacpp") is None:
        hint = "pip install 'tritgold[peers]'"
        raise MissingDependencyError(
            "the peer llama.cpp needs xllamacpp", kind="missing-dependency", thing="xllamacpp", hint=hint
        )
    if "transformers" in plan.peers and not os.environ.get(PEERS_PYTHON):
        hint = f"set {PEERS_PYTHON} to a Python that has torch, transformers and accelerate; make peers makes one"
        raise MissingDependencyError(
            "the peer transformers runs in another Python", kind="missing-dependency", thing=PEERS_PYTHON, hint=hint
        )
    ways = {"llama.cpp": for_llama_cpp, "transformers": for_transformers}
    return {peer: ways[peer](model, say) for peer in plan.peers}


def _memory(plan: Plan, model: Model, files: dict[str, Path]) -> dict[str, int]:
    positions = plan.capacity()
    need = {plan.engine: room.engine_bytes(model.config, positions)}
    for peer, path in files.items():
        size = path.stat().st_size if path.is_file() else 0
        need[peer] = room.peer_bytes(peer, model.config, positions, size)
    return need


def environment(threads: int, cache: str | None = None) -> dict[str, str]:
    """The environment of a process that is to use so many threads.

    The processors that the child holds itself to decide for most libraries; NPROC says it to XLA again, and BLAS and
    OpenMP have variables of their own. cache: a folder for JAX's compiled programs.
    """
    count = str(threads)
    names = ("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    found = {**os.environ, **dict.fromkeys(names, count)}
    found["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if cache is not None:
        found["JAX_COMPILATION_CACHE_DIR"] = cache
        found["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    return found


class _OneCount:
    """All rows with one number of threads."""

    def __init__(
        self, plan: Plan, model: Model | None, matrices: list[tuple[int, int]], files: dict[str, Path], threads: int,
        found: Found, say: Say,
    ) -> None:  # fmt: skip
        self.plan, self.model, self.matrices, self.files = plan, model, matrices, files
        self.threads, self.found, self.say = threads, found, say
        self.peers: dict[str, Worker] = {}
        self.roof = 0.0
        self.sizes: dict[str, int] = {}

    def run(self) -> None:
        self.bandwidth()
        if self.plan.matrix_rows and self.matrices:
            with self.worker() as multiplying:
                for out, in_ in self.matrices:
                    self.products(multiplying, out, in_)
        if self.model is not None and (self.plan.model_rows or self.plan.profile):
            with ExitStack() as stack:
                ours = stack.enter_context(self.worker())
                self.open_peers(stack, self.model)
                self.whole_model(ours, self.model)

    def bandwidth(self) -> None:
        """In a process of its own: the buffer must not count as the engine's memory."""
        self.say(f"read bandwidth, {self.threads} threads")
        size = self.plan.bandwidth_size
        with self.worker() as reading:
            ways = reading.ask("bandwidth", size=size)
        self.roof = max(ways.values())
        self.found.bandwidth.append(Bandwidth(threads=self.threads, size=size, best=self.roof, ways=ways))

    def worker(self, cache: str | None = None) -> Worker:
        command = [sys.executable, "-m", worker.__name__, self.plan.engine, str(self.threads)]
        return Worker(self.plan.engine, command, environment(self.threads, cache))

    def open_peers(self, stack: ExitStack, model: Model) -> None:
        for peer, path in self.files.items():
            self.say(f"opening {peer}, {self.threads} threads")
            given = environment(self.threads)
            if peer == "llama.cpp":
                module = "tritgold_conformance.bench.worker_llama_cpp"
                command = [sys.executable, "-m", module, str(self.threads)]
            else:
                command = [os.environ[PEERS_PYTHON], str(worker_transformers.__file__), str(self.threads)]
                given.pop("PYTHONPATH")
            child = stack.enter_context(Worker(peer, command, given))
            opened = child.ask("open", path=str(path), capacity=self.plan.capacity(), vocab=model.config.vocab)
            self.peers[peer] = child
            note = "a peer, timed as it is"
            engine = Engine(
                name=peer, threads=self.threads, options=opened["options"], versions={}, flags={}, passed=None, judged=note
            )
            engine.load = opened["load"]
            self.found.engines.append(engine)

    def whole_model(self, ours: Worker, model: Model) -> None:
        """The rows by KV cache: that of the engine first, then those of the row ``kv``."""
        groups: dict[str | None, list[tuple[str, Case]]] = {None: []}
        for row in self.plan.model_rows:
            for case in self.plan.cases(row):
                groups.setdefault(case.get("kv"), []).append((row, case))
        for kv_cache, cases in groups.items():
            if not cases and not (kv_cache is None and self.plan.profile):
                continue
            self.say(f"judging {self.plan.engine}, {self.threads} threads")
            said = ours.ask("judge", path=str(model.judged), kv_cache=kv_cache)
            engine = Engine(
                name=self.plan.engine, threads=self.threads, options={"kv_cache": str(said["kv_cache"])}, versions={},
                flags={}, passed=said["passed"], judged=said["text"],
            )  # fmt: skip
            if "[not-offered]" in said["text"]:
                self.refused(cases, "not offered", said["text"])
                continue
            self.found.engines.append(engine)
            if not said["passed"]:
                self.refused(cases, "not passed", said["text"])
                continue
            self.timed(ours, model, engine, kv_cache, cases)
        for one in self.found.engines:
            if one.threads == self.threads:
                facts = {**self.peers, self.plan.engine: ours}[one.name].ask("facts")
                one.versions, one.flags, one.peak_memory = facts["versions"], facts["flags"], facts["peak_memory"]

    def refused(self, cases: list[tuple[str, Case]], status: Any, why: str) -> None:
        """No speed for these."""
        for row, case in cases:
            self.add(Result(row=row, engine=self.plan.engine, threads=self.threads, case=case, status=status, why=why))

    def timed(
        self, ours: Worker, model: Model, engine: Engine, kv_cache: str | None, cases: list[tuple[str, Case]]
    ) -> None:
        self.say(f"opening {model.name}")
        opened = ours.ask("open", path=str(model.path), capacity=self.plan.capacity(), kv_cache=kv_cache)
        engine.load, self.sizes = opened["load"], opened["sizes"]
        engine.packed_bytes, engine.head_bytes, engine.kv_bytes = (self.sizes.get(k) for k in ("packed", "head", "kv"))
        for row, case in cases:
            self.say(f"{row} {_shown(case)}, {self.threads} threads")
            if row == "start":
                self.start(model, engine)
            else:
                self.rounds(ours, model.config, row, case)
        if kv_cache is None and self.plan.profile:
            self.profile(ours, model.config)

    def rounds(self, ours: Worker, config: ModelConfig, row: str, case: Case) -> None:
        """One case: all engines in turn, as many rounds as asked for."""
        first = None
        own = "decode" if row == "kv" else row
        seconds: dict[str, list[list[float]]] = defaultdict(list)
        peers = {name: peer for name, peer in self.peers.items() if row in OF_A_PEER}
        try:
            for number in range(self.plan.runs + 1):  # the first round is not counted
                got = {self.plan.engine: ours.ask("measure", row=own, case=case)}
                first = got[self.plan.engine]["first"] if number == 0 else first
                got |= {name: peer.ask("measure", row=OF_A_PEER[row], case=case) for name, peer in peers.items()}
                for name, said in got.items() if number else ():
                    seconds[name].append(said["seconds"])
        except EngineError as error:
            if error.kind == "worker":
                raise
            missing = error.kind == "not-offered"
            why = f"the engine has no {error.thing}" if missing else str(error)
            self.refused([(row, case)], "not offered" if missing else "failed", why)
            return
        means = {name: [sum(r) / len(r) for r in rounds] for name, rounds in seconds.items()}
        for name, rounds in seconds.items():
            result = self.result(name, config, row, case, Timing.of([s for r in rounds for s in r]))
            if name == self.plan.engine:
                result.first = first
            else:
                result.ratio = paired_ratio(means[name], means[self.plan.engine])
            self.add(result)

    def result(self, name: str, config: ModelConfig, row: str, case: Case, timing: Timing) -> Result:
        """Seconds as speeds."""
        units = case.get("tokens", 1)
        weights, head = room.ternary_weights(config), room.head_weights(config)
        macs = units * weights + head
        moved = self.moved(name, config, case) if "context" in case else None
        return Result(
            row=row, engine=name, threads=self.threads, case=case, status="measured", units=units, timing=timing,
            unit="token" if "context" in case else "prompt", per_second=units / timing.median,
            gmacs=macs / timing.median / 1e9, moved=moved,
            share=None if moved is None else moved / timing.median / self.roof,
        )  # fmt: skip

    def moved(self, name: str, config: ModelConfig, case: Case) -> int | None:
        """Bytes that one decode step reads: every ternary weight, the head, and the KV cache so far."""
        positions = case["context"] + case["steps"] * (self.plan.runs + 1) // 2
        weights, head, kv = room.ternary_weights(config), room.head_weights(config), room.kv_values(config)
        if name == self.plan.engine:
            if not self.sizes:
                return None
            return self.sizes["packed"] + self.sizes["head"] + self.sizes["kv"] * positions
        if name == "llama.cpp":  # TQ2_0 and F16; its rounds all begin at the context
            return weights * 66 // 256 + 2 * head + 2 * kv * (case["context"] + case["steps"] // 2)
        return 2 * (weights + head + kv * positions)

    def start(self, model: Model, engine: Engine) -> None:
        """The first token of a new process: with an empty compilation cache, then with the one that this left."""
        with tempfile.TemporaryDirectory(prefix="tritgold-bench-") as cache:
            for what in ("cold", "warm"):
                with self.worker(cache) as child:
                    said = child.ask("open", path=str(model.path), capacity=self.plan.capacity(), kv_cache=None)
                case = {"cache": what}
                setattr(engine, what, said["first"])
                timing = Timing.of([said["load"] + (said["first"] or 0)])
                self.add(Result(
                    row="start", engine=self.plan.engine, threads=self.threads, case=case, status="measured",
                    unit="load and first token", timing=timing, first=said["first"],
                ))  # fmt: skip

    def products(self, ours: Worker, out: int, in_: int) -> None:
        """Every way to multiply one matrix."""
        for row in self.plan.matrix_rows:
            for case in self.plan.cases(row):
                case = {"matrix": f"{out}x{in_}", **case}
                self.say(f"{row} {_shown(case)}, {self.threads} threads")
                asked = {"out": out, "in_": in_, "tokens": case["tokens"]}
                rounds = [ours.ask("product", **asked) for _ in range(self.plan.runs + 1)][1:]
                for name in rounds[0]:
                    self.add(self.product(row, {**case, "way": name}, [r[name] for r in rounds], out * in_))

    def product(self, row: str, case: Case, said: list[dict[str, Any]], weights: int) -> Result:
        """One way, from its rounds."""
        first = said[0]
        result = Result(
            row=row, engine=self.plan.engine, threads=self.threads, case=case, status="not passed",
            unit="product", why=first["wrong"],
        )  # fmt: skip
        if first["wrong"]:
            return result
        timing = Timing.of([s["seconds"] for s in said])
        result.status, result.why, result.timing, result.moved = "measured", first["why"], timing, first["moved"]
        result.gmacs = weights * case["tokens"] / timing.median / 1e9
        result.share = first["moved"] / timing.median / self.roof if case["tokens"] == 1 else None
        return result

    def profile(self, ours: Worker, config: ModelConfig) -> None:
        """The parts of a decode step against the whole."""
        context = (self.plan.contexts or (64,))[0]
        case = {"context": context, "steps": self.plan.steps}
        self.say(f"profile, {self.threads} threads")
        try:
            parts = ours.ask("profile", context=context, runs=self.plan.runs)
        except EngineError as error:
            if error.kind == "worker":
                raise
            self.refused([("profile", case)], "failed", str(error))
            return
        whole = [ours.ask("measure", row="decode", case=case)["seconds"] for _ in range(self.plan.runs + 1)][1:]
        step = Timing.of([s for seconds in whole for s in seconds]).median
        shown = [
            Part(name=p["name"], calls=p["calls"], seconds=Timing.of(p["seconds"]).median, moved=p["moved"])
            for p in parts
        ]
        total = sum(part.seconds for part in shown)
        self.found.profiles.append(
            Profile(
                threads=self.threads, context=context, parts=shown, total=total, step=step, overhead=step - total
            )
        )

    def add(self, result: Result) -> None:
        self.found.results.append(result)


def _shown(case: Case) -> str:
    return " ".join(f"{name} {value}" for name, value in case.items())


def _scaling(results: list[Result]) -> None:
    """How many times faster than the same with one thread."""
    alone = {(r.row, r.engine, _shown(r.case)): r.timing for r in results if r.threads == 1 and r.timing is not None}
    for result in results:
        one = alone.get((result.row, result.engine, _shown(result.case)))
        if one is not None and result.timing is not None and result.threads > 1:
            result.scaling = one.median / result.timing.median
