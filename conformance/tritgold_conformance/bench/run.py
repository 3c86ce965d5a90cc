"""The benchmark itself: for each thread count a process of the engine and one of each peer, commanded in turn.

One is idle while the other is timed, and every round measures all of them: a machine that slows down for a minute
slows all sides of a round, and their ratio stays.
"""

import tempfile
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritgold.config import ModelConfig
from tritgold.errors import EngineError
from tritgold.weights import LINEARS
from tritgold_conformance.bench import room
from tritgold_conformance.bench.lines import Worker
from tritgold_conformance.bench.models import Model, for_llama_cpp, for_transformers
from tritgold_conformance.bench.plan import OF_A_PEER, Case, Plan
from tritgold_conformance.bench.processes import engine_process, peer_process, require_peers
from tritgold_conformance.bench.results import Bandwidth, Engine, Part, Profile, Result, Tuned
from tritgold_conformance.bench.speeds import add_scaling, bytes_of_a_step, row_of_a_matrix, row_of_a_model, shown
from tritgold_conformance.bench.synthetic import Say
from tritgold_conformance.bench.timing import Timing, paired_ratio


@dataclass
class Found:
    """What has been measured so far."""

    engines: list[Engine] = field(default_factory=list)
    bandwidth: list[Bandwidth] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)
    tuned: list[Tuned] = field(default_factory=list)


def run(
    plan: Plan,
    model: Model | None,
    matrices: list[tuple[int, int]],
    say: Say = lambda _: None,
    found: Found | None = None,
) -> Found:
    """Measure. model: None for the rows of a matrix alone; matrices: sizes [out, in] for those.

    found: filled while measuring, so that whoever stops it has what was measured by then.
    Raises what ``check`` raises, EngineError where a process ends by itself.
    """
    found = Found() if found is None else found
    files = dict[str, Path]()
    if model is not None:
        size = sum(path.stat().st_size for path in [model.path] if path.is_file())
        check(plan, model.config, size)
        ways = {"llama.cpp": for_llama_cpp, "transformers": for_transformers}
        files = {peer: ways[peer](model, say) for peer in plan.peers}
    for threads in plan.threads:
        _OneCount(plan, model, matrices, files, threads, found, say).run()
    add_scaling(found.results)
    return found


def check(plan: Plan, config: ModelConfig, file_size: int) -> None:
    """Whether a model can be measured, before it is written or opened.

    Raises MissingDependencyError for a peer that is not there, ContextError for more positions than the model has,
    EngineError ``memory`` for more bytes than the machine has free. file_size: bytes that llama.cpp will map.
    """
    require_peers(plan.peers)
    plan.require_context(config)
    positions = plan.capacity()
    need = {plan.engine: room.engine_bytes(config, positions)}
    need |= {peer: room.peer_bytes(peer, config, positions, file_size) for peer in plan.peers}
    room.require_memory(need)


class _OneCount:
    """All rows with one number of threads."""

    def __init__(
        self, plan: Plan, model: Model | None, matrices: list[tuple[int, int]], files: dict[str, Path], threads: int,
        found: Found, say: Say,
    ) -> None:  # fmt: skip
        self.plan, self.model, self.matrices, self.files = plan, model, matrices, files
        self.threads, self.found, self.say = threads, found, say
        self.peers: dict[str, Worker] = {}
        self.of_peers: list[Engine] = []
        self.roof = 0.0
        self.sizes: dict[str, int] = {}

    def run(self) -> None:
        self.bandwidth()
        if self.plan.tune:
            self.tune()
        if self.plan.matrix_rows and self.matrices:
            with engine_process(self.plan.engine, self.threads) as multiplying:
                for out, in_ in self.matrices:
                    self.products(multiplying, out, in_)
        if self.model is not None and (self.plan.model_rows or self.plan.profile):
            groups = self.groups()
            said = self.judge(self.model, list(groups))
            if any(verdict["passed"] for verdict in said.values()):
                with ExitStack() as stack:
                    ours = stack.enter_context(engine_process(self.plan.engine, self.threads))
                    self.open_peers(stack, self.model)
                    for kv_cache, cases in groups.items():
                        if said[kv_cache]["passed"]:
                            self.timed(ours, self.model, said[kv_cache], kv_cache, cases)
                    for one, peer in zip(self.of_peers, self.peers.values(), strict=True):
                        _fill(one, peer)

    def groups(self) -> dict[str | None, list[tuple[str, Case]]]:
        """Rows and cases by KV cache: the plan's first, or None, the engine's own; then those of the row ``kv``."""
        groups: dict[str | None, list[tuple[str, Case]]] = {}
        if self.plan.profile or set(self.plan.model_rows) - {"kv"}:
            groups[self.plan.kv_cache] = []
        for row in self.plan.model_rows:
            for case in self.plan.cases(row):
                groups.setdefault(case.get("kv", self.plan.kv_cache), []).append((row, case))
        return groups

    def judge(self, model: Model, kv_caches: list[str | None]) -> dict[str | None, Any]:
        """Verdicts by KV cache. In a process of its own, like the timed one but for what judging leaves in memory.

        A cache that does not pass has no speed.
        """
        said = {}
        with engine_process(self.plan.engine, self.threads) as judging:
            for kv_cache in kv_caches:
                named = "" if kv_cache is None else f", KV cache {kv_cache}"
                self.say(f"judging {self.plan.engine}{named}, {self.threads} threads")
                said[kv_cache] = judging.ask("judge", path=str(model.judged), kv_cache=kv_cache)
        for kv_cache, cases in self.groups().items():
            verdict = said[kv_cache]
            if not verdict["passed"]:
                missing = "[not-offered]" in verdict["text"]
                self.refused(cases, "not offered" if missing else "not passed", verdict["text"])
                if not missing:
                    self.found.engines.append(self.engine(verdict))
        return said

    def engine(self, verdict: dict[str, Any]) -> Engine:
        options = {} if verdict["kv_cache"] is None else {"kv_cache": str(verdict["kv_cache"])}
        return Engine(
            name=self.plan.engine, threads=self.threads, options=options, versions={}, flags={},
            passed=verdict["passed"], judged=verdict["text"],
        )  # fmt: skip

    def bandwidth(self) -> None:
        """In a process of its own: the buffer must not count as the engine's memory."""
        self.say(f"read bandwidth, {self.threads} threads")
        size = self.plan.bandwidth_size
        with engine_process(self.plan.engine, self.threads) as reading:
            ways = reading.ask("bandwidth", size=size)
        self.roof = max(ways.values())
        self.found.bandwidth.append(Bandwidth(threads=self.threads, size=size, best=self.roof, ways=ways))

    def tune(self) -> None:
        """Every matrix of the model, or those that were named; the processes that follow use what is found."""
        c = None if self.model is None else self.model.config
        matrices = self.matrices if c is None else list(dict.fromkeys(c.linear_shape(name) for name in LINEARS))
        with engine_process(self.plan.engine, self.threads) as tuning:
            for out, in_ in matrices:
                self.say(f"tuning {out}x{in_}, {self.threads} threads")
                for said in tuning.ask("tune", out=out, in_=in_):
                    self.found.tuned.append(Tuned(threads=self.threads, out=out, in_=in_, **said))

    def open_peers(self, stack: ExitStack, model: Model) -> None:
        for peer, path in self.files.items():
            self.say(f"opening {peer}, {self.threads} threads")
            child = stack.enter_context(peer_process(peer, self.threads))
            opened = child.ask("open", path=str(path), capacity=self.plan.capacity(), vocab=model.config.vocab)
            self.peers[peer] = child
            note = "a peer, timed as it is"
            engine = Engine(
                name=peer,
                threads=self.threads,
                options=opened["options"],
                versions={},
                flags={},
                passed=None,
                judged=note,
            )
            engine.load = opened["load"]
            self.found.engines.append(engine)
            self.of_peers.append(engine)

    def refused(self, cases: list[tuple[str, Case]], status: Any, why: str, name: str | None = None) -> None:
        """No speed for these. name: of a peer, None for the benchmark's engine."""
        engine = name or self.plan.engine
        for row, case in cases:
            self.add(Result(row=row, engine=engine, threads=self.threads, case=case, status=status, why=why))

    def missing(self, row: str, case: Case, error: EngineError, name: str | None = None) -> None:
        """What an engine does not have, or could not do. Raises what ended its process."""
        if error.kind == "worker":
            raise error
        offered = error.kind != "not-offered"
        why = str(error) if offered else f"the engine has no {error.thing}"
        self.refused([(row, case)], "failed" if offered else "not offered", why, name)

    def timed(
        self, ours: Worker, model: Model, verdict: dict[str, Any], kv_cache: str | None, cases: list[tuple[str, Case]]
    ) -> None:
        engine = self.engine(verdict)
        self.found.engines.append(engine)
        self.say(f"opening {model.name}")
        opened = ours.ask("open", path=str(model.path), capacity=self.plan.capacity(), kv_cache=kv_cache)
        engine.load, self.sizes = opened["load"], opened["sizes"]
        engine.packed_bytes, engine.head_bytes, engine.kv_bytes = (self.sizes.get(k) for k in ("packed", "head", "kv"))
        for row, case in cases:
            self.say(f"{row} {shown(case)}, {self.threads} threads")
            if row == "start":
                self.start(model, engine)
            else:
                self.rounds(ours, model.config, row, case)
        if kv_cache == self.plan.kv_cache and self.plan.profile:
            self.profile(ours, model.config)
        _fill(engine, ours)

    def rounds(self, ours: Worker, config: ModelConfig, row: str, case: Case) -> None:
        """One case: all engines in turn, as many rounds as asked for. A peer that fails is left out."""
        first = None
        own = "decode" if row == "kv" else row
        seconds: dict[str, list[list[float]]] = defaultdict(list)
        peers = {name: peer for name, peer in self.peers.items() if row in OF_A_PEER}
        for number in range(self.plan.runs + 1):  # the first round is not counted
            try:
                got = {self.plan.engine: ours.ask("measure", row=own, case=case)}
            except EngineError as error:
                self.missing(row, case, error)
                return
            first = got[self.plan.engine]["first"] if number == 0 else first
            for name, peer in [*peers.items()]:
                try:
                    got[name] = peer.ask("measure", row=OF_A_PEER[row], case=case)
                except EngineError as error:
                    self.missing(row, case, error, name)
                    del peers[name]
                    seconds.pop(name, None)
            for name, said in got.items() if number else ():
                seconds[name].append(said["seconds"])
        means = {name: [sum(r) / len(r) for r in rounds] for name, rounds in seconds.items()}
        for name, rounds in seconds.items():
            timing = Timing.of([s for r in rounds for s in r])
            result = row_of_a_model(row, name, self.threads, config, case, timing)
            if "context" in case and row != "batch":
                sizes = self.sizes if name == self.plan.engine else None
                result.moved = bytes_of_a_step(name, row, config, case, self.plan.runs, sizes)
                result.share = None if result.moved is None else result.moved / timing.median / self.roof
            if name == self.plan.engine:
                result.first = first
            else:
                result.ratio = paired_ratio(means[name], means[self.plan.engine])
            self.add(result)

    def start(self, model: Model, engine: Engine) -> None:
        """The first token of a new process: with an empty compilation cache, then with the one that this left."""
        with tempfile.TemporaryDirectory(prefix="tritgold-bench-") as cache:
            for what in ("cold", "warm"):
                with engine_process(self.plan.engine, self.threads, cache) as child:
                    said = child.ask(
                        "open", path=str(model.path), capacity=self.plan.capacity(), kv_cache=self.plan.kv_cache
                    )
                case: Case = {"cache": what}
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
                self.say(f"{row} {shown(case)}, {self.threads} threads")
                asked = {"out": out, "in_": in_, "tokens": case["tokens"]}
                rounds = [ours.ask("product", **asked) for _ in range(self.plan.runs + 1)][1:]
                for name in rounds[0]:
                    self.add_way(row, {**case, "way": name}, [r[name] for r in rounds], out * in_)

    def add_way(self, row: str, case: Case, said: list[dict[str, Any]], weights: int) -> None:
        result = row_of_a_matrix(row, self.threads, case, said, weights)
        if result.timing is not None and result.moved is not None and case["tokens"] == 1:
            result.share = result.moved / result.timing.median / self.roof
        self.add(result)

    def profile(self, ours: Worker, config: ModelConfig) -> None:
        """The parts of a decode step against the whole."""
        context = (self.plan.contexts or (64,))[0]
        case = {"context": context, "steps": self.plan.steps}
        self.say(f"profile, {self.threads} threads")
        rounds, steps = [], []
        try:
            for number in range(self.plan.runs + 1):  # in turn, as everything that is compared; the first not counted
                parts = ours.ask("profile", context=context)
                whole = ours.ask("measure", row="decode", case=case)["seconds"]
                rounds += [parts] * (number > 0)
                steps += whole * (number > 0)
        except EngineError as error:
            self.missing("profile", case, error)
            return
        step = Timing.of(steps).median
        measured = [
            Part(
                name=same[0]["name"], calls=same[0]["calls"], moved=same[0]["moved"],
                seconds=Timing.of([p["seconds"] for p in same]).median,
            )
            for same in zip(*rounds, strict=True)
        ]  # fmt: skip
        total = sum(part.seconds for part in measured)
        self.found.profiles.append(
            Profile(
                threads=self.threads, context=context, parts=measured, total=total, step=step, overhead=step - total
            )
        )

    def add(self, result: Result) -> None:
        self.found.results.append(result)


def _fill(engine: Engine, process: Worker) -> None:
    """What its process says of itself when all is done."""
    facts = process.ask("facts")
    engine.versions, engine.flags, engine.peak_memory = facts["versions"], facts["flags"], facts["peak_memory"]
