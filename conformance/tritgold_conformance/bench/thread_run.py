"""All rows with one number of threads: the judge first, then every case in rounds, the peers in turn."""

import statistics
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tritgold.config import ModelConfig
from tritgold.errors import EngineError
from tritgold.weights import LINEARS
from tritgold_conformance.bench.json_rpc import Worker
from tritgold_conformance.bench.models import Model
from tritgold_conformance.bench.plan import OF_A_PEER, Case, Plan
from tritgold_conformance.bench.processes import engine_process, peer_process
from tritgold_conformance.bench.profiled import profile_of
from tritgold_conformance.bench.results import Engine, Found, Result, Tuned
from tritgold_conformance.bench.roofline import Roof, share
from tritgold_conformance.bench.synthetic import Say
from tritgold_conformance.bench.throughput import bytes_of_a_step, row_of_a_matrix, row_of_a_model, shown
from tritgold_conformance.bench.timing import Timing, paired_ratio


class OneCount:
    """All rows with one number of threads. files: what each peer opens."""

    def __init__(
        self, plan: Plan, model: Model | None, matrices: list[tuple[int, int]], files: dict[str, Path], threads: int,
        found: Found, say: Say,
    ) -> None:  # fmt: skip
        self.plan, self.model, self.matrices, self.files = plan, model, matrices, files
        self.threads, self.found, self.say = threads, found, say
        self.peers: dict[str, Worker] = {}
        self.of_peers: dict[str, Engine] = {}
        self.roof: Roof
        self.sizes: dict[str, int] = {}

    def run(self) -> None:
        """Measure; everything goes into what was found."""
        with engine_process(self.plan.engine, self.threads) as reading:
            self.say(f"read bandwidth, {self.threads} threads")
            self.roof = Roof(reading, self.threads, self.plan.bandwidth_size)
            self.roof.sample()
            self.found.bandwidth.append(self.roof.found)
            self._all_rows()

    def _all_rows(self) -> None:
        if self.plan.tune:
            self._tune()
        if self.plan.matrix_rows and self.matrices:
            with engine_process(self.plan.engine, self.threads) as multiplying:
                for out, in_ in self.matrices:
                    self._products(multiplying, out, in_)
        if self.model is not None and (self.plan.model_rows or self.plan.profile):
            groups = self._groups()
            said = self._judge(self.model, groups)
            if any(verdict["passed"] for verdict in said.values()):
                with ExitStack() as stack:
                    ours = stack.enter_context(engine_process(self.plan.engine, self.threads))
                    self._open_peers(stack, self.model)
                    for kv_cache, cases in groups.items():
                        if said[kv_cache]["passed"]:
                            self._timed(ours, self.model, said[kv_cache], kv_cache, cases)
                    for name, peer in self.peers.items():
                        _fill(self.of_peers[name], peer)

    def _groups(self) -> dict[str | None, list[tuple[str, Case]]]:
        """Rows and cases by KV cache: the plan's first, or None, the engine's own; then those of the row ``kv``."""
        groups: dict[str | None, list[tuple[str, Case]]] = {}
        if self.plan.profile or set(self.plan.model_rows) - {"kv"}:
            groups[self.plan.kv_cache] = []
        for row in self.plan.model_rows:
            for case in self.plan.cases(row):
                groups.setdefault(case.get("kv", self.plan.kv_cache), []).append((row, case))
        return groups

    def _judge(self, model: Model, groups: dict[str | None, list[tuple[str, Case]]]) -> dict[str | None, Any]:
        """Verdicts by KV cache. In a process of its own, like the timed one but for what judging leaves in memory and
        for programs that are kept.

        A cache that does not pass has no speed.
        """
        said = {}
        with engine_process(self.plan.engine, self.threads, timed=False) as judging:
            for kv_cache, cases in groups.items():
                named = "" if kv_cache is None else f", KV cache {kv_cache}"
                self.say(f"judging {self.plan.engine}{named}, {self.threads} threads")
                rows = [*cases]
                if self.plan.profile and kv_cache == self.plan.kv_cache:
                    rows.append(("decode", {}))
                said[kv_cache] = judging.ask("judge", path=str(model.judged), kv_cache=kv_cache, rows=rows)
        for kv_cache, cases in groups.items():
            verdict = said[kv_cache]
            if not verdict["passed"]:
                missing = "[not-offered]" in verdict["text"]
                self._refused(cases, "not offered" if missing else "not passed", verdict["text"])
                if not missing:
                    self.found.engines.append(self._engine(verdict))
        return said

    def _engine(self, verdict: dict[str, Any]) -> Engine:
        options = {} if verdict["kv_cache"] is None else {"kv_cache": str(verdict["kv_cache"])}
        return Engine(
            name=self.plan.engine, threads=self.threads, options=options, versions={}, flags={},
            passed=verdict["passed"], judged=verdict["text"],
        )  # fmt: skip

    def _tune(self) -> None:
        """Every matrix of the model, or those that were named; the processes that follow use what is found."""
        c = None if self.model is None else self.model.config
        matrices = self.matrices if c is None else list(dict.fromkeys(c.linear_shape(name) for name in LINEARS))
        with engine_process(self.plan.engine, self.threads) as tuning:
            for out, in_ in matrices:
                self.say(f"tuning {out}x{in_}, {self.threads} threads")
                for said in tuning.ask("tune", out=out, in_=in_):
                    self.found.tuned.append(Tuned(threads=self.threads, out=out, in_=in_, **said))

    def _open_peers(self, stack: ExitStack, model: Model) -> None:
        for peer, path in self.files.items():
            self.say(f"opening {peer}, {self.threads} threads")
            child = stack.enter_context(peer_process(peer, self.threads))
            try:
                opened = child.ask("open", path=str(path), capacity=self.plan.capacity(), vocab=model.config.vocab)
            except EngineError as error:  # it is left out, as one that fails later
                for row in self.plan.model_rows:
                    for case in self.plan.cases(row) if row in OF_A_PEER else ():
                        self._missing(row, case, error, peer)
                continue
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
            self.of_peers[peer] = engine

    def _refused(self, cases: list[tuple[str, Case]], status: Any, why: str, name: str | None = None) -> None:
        """No speed for these. name: of a peer, None for the benchmark's engine."""
        engine = name or self.plan.engine
        for row, case in cases:
            self._add(Result(row=row, engine=engine, threads=self.threads, case=case, status=status, why=why))

    def _missing(self, row: str, case: Case, error: EngineError, name: str | None = None) -> None:
        """What an engine does not have, or could not do. Raises what ended the process of the benchmark's own."""
        if error.kind == "worker" and name is None:
            raise error
        offered = error.kind != "not-offered"
        why = str(error) if offered else f"the engine has no {error.thing}"
        self._refused([(row, case)], "failed" if offered else "not offered", why, name)

    def _timed(
        self, ours: Worker, model: Model, verdict: dict[str, Any], kv_cache: str | None, cases: list[tuple[str, Case]]
    ) -> None:
        engine = self._engine(verdict)
        self.found.engines.append(engine)
        self.say(f"opening {model.name}")
        opened = ours.ask("open", path=str(model.path), capacity=self.plan.capacity(), kv_cache=kv_cache)
        engine.load, self.sizes = opened["load"], opened["sizes"]
        engine.packed_bytes, engine.head_bytes, engine.kv_bytes = (self.sizes.get(k) for k in ("packed", "head", "kv"))
        for row, case in cases:
            self.say(f"{row} {shown(case)}, {self.threads} threads")
            if row == "start":
                self._start(model, engine)
            else:
                self._rounds(ours, model.config, row, case)
        if kv_cache == self.plan.kv_cache and self.plan.profile:
            self._profile(ours)
        _fill(engine, ours)

    def _rounds(self, ours: Worker, config: ModelConfig, row: str, case: Case) -> None:
        """One case: all engines in turn, as many rounds as asked for. A peer that fails is left out."""
        first = None
        own, roofs = "decode" if row == "kv" else row, list[float]()
        by_bytes = "context" in case and row != "batch" and bool(self.sizes or self.peers)
        seconds: dict[str, list[list[float]]] = defaultdict(list)
        peers = {name: peer for name, peer in self.peers.items() if row in OF_A_PEER}
        for number in range(self.plan.runs + 1):  # the first round is not counted
            try:
                got = {self.plan.engine: ours.ask("measure", row=own, case=case)}
            except EngineError as error:
                self._missing(row, case, error)
                return
            first = got[self.plan.engine]["first"] if number == 0 else first
            for name, peer in [*peers.items()]:
                try:
                    got[name] = peer.ask("measure", row=OF_A_PEER[row], case=case)
                except EngineError as error:
                    self._missing(row, case, error, name)
                    del peers[name]
                    seconds.pop(name, None)
                    if error.kind == "worker":  # its process has ended
                        del self.peers[name]
            if by_bytes and number:
                roofs.append(self.roof.sample())
            for name, said in got.items() if number else ():
                seconds[name].append(said["seconds"])
        means = {name: [sum(r) / len(r) for r in rounds] for name, rounds in seconds.items()}
        medians = {name: [statistics.median(r) for r in rounds] for name, rounds in seconds.items()}
        for name, rounds in seconds.items():
            timing = Timing.of([s for r in rounds for s in r])
            result = row_of_a_model(row, name, self.threads, config, case, timing)
            if by_bytes:
                sizes = self.sizes if name == self.plan.engine else None
                result.moved = bytes_of_a_step(name, row, config, case, self.plan.runs, sizes)
                result.share = None if result.moved is None else share(result.moved, medians[name], roofs)
            if name == self.plan.engine:
                result.first = first
            else:
                result.ratio = paired_ratio(means[name], means[self.plan.engine])
            self._add(result)

    def _start(self, model: Model, engine: Engine) -> None:
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
                self._add(Result(
                    row="start", engine=self.plan.engine, threads=self.threads, case=case, status="measured",
                    unit="load and first token", timing=timing, first=said["first"],
                ))  # fmt: skip

    def _products(self, ours: Worker, out: int, in_: int) -> None:
        """Every way to multiply one matrix."""
        for row in self.plan.matrix_rows:
            for case in self.plan.cases(row):
                case = {"matrix": f"{out}x{in_}", **case}
                self.say(f"{row} {shown(case)}, {self.threads} threads")
                asked = {"out": out, "in_": in_, "tokens": case["tokens"]}
                ours.ask("product", **asked)  # the first round is not counted
                rounds, roofs = list[dict[str, Any]](), list[float]()
                for _ in range(self.plan.runs):
                    rounds.append(ours.ask("product", **asked))
                    roofs += [self.roof.sample()] if case["tokens"] == 1 else []
                for name in rounds[0]:
                    said = [r[name] for r in rounds]
                    result = row_of_a_matrix(row, self.threads, {**case, "way": name}, said, out * in_)
                    if result.timing is not None and result.moved is not None and roofs:
                        result.share = share(result.moved, [s["seconds"] for s in said], roofs)
                    self._add(result)

    def _profile(self, ours: Worker) -> None:
        """The parts of a decode step against the whole."""
        case = {"context": (self.plan.contexts or (64,))[0], "steps": self.plan.steps}
        self.say(f"profile, {self.threads} threads")
        try:
            self.found.profiles.append(profile_of(ours, self.roof, self.threads, case, self.plan.runs))
        except EngineError as error:
            self._missing("profile", case, error)

    def _add(self, result: Result) -> None:
        self.found.results.append(result)


def _fill(engine: Engine, process: Worker) -> None:
    """What its process says of itself when all is done."""
    facts = process.ask("facts")
    engine.versions, engine.flags, engine.peak_memory = facts["versions"], facts["flags"], facts["peak_memory"]
