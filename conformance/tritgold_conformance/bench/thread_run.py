"""All rows with one number of threads: the engine is judged, then every case is measured in rounds, with its peers."""

import statistics
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from typing import Any

from tritgold.config import ModelConfig
from tritgold.errors import EngineError
from tritgold_conformance.bench.json_rpc import Worker
from tritgold_conformance.bench.kernel_rows import products, sizes, small, tuned
from tritgold_conformance.bench.models import Model
from tritgold_conformance.bench.peer_files import PeerFiles
from tritgold_conformance.bench.peer_names import peer as named
from tritgold_conformance.bench.plan import OF_A_PEER, Case, Groups, Plan
from tritgold_conformance.bench.processes import engine_process, judged_peer, peer_process
from tritgold_conformance.bench.results import BenchResults, Engine, Result, Status
from tritgold_conformance.bench.roofline import Roof, roofline_fraction
from tritgold_conformance.bench.serve_row import served
from tritgold_conformance.bench.synthetic import Say, cache_folder
from tritgold_conformance.bench.throughput import bytes_of_a_step, profile_of, row_of_a_model, shown
from tritgold_conformance.bench.timing import Timing, paired_ratio


class ThreadRun:
    """All rows with one number of threads. files: of each peer, by its name in the plan. found: filled while measuring.

    config: sizes for rows without a model file, if there is no model.
    """

    def __init__(
        self, plan: Plan, model: Model | None, matrices: list[tuple[int, int]], files: dict[str, PeerFiles],
        threads: int, found: BenchResults, say: Say, config: ModelConfig | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.model, self.matrices, self.files = plan, model, matrices, files
        self.threads, self.found, self._say = threads, found, say
        self.peers: dict[str, Worker] = {}
        self.of_peers: dict[str, Engine] = {}
        self.of_files: dict[str, PeerFiles] = {}
        self.config = config if model is None else model.config
        self.roof: Roof
        self.sizes: dict[str, int] = {}

    def run(self) -> None:
        """Measure, and add all results to ``found``."""
        with self._process() as reading:
            self.say("read bandwidth")
            self.roof = Roof(reading, self.threads, self.plan.bandwidth_size)
            self.roof.sample()
            self.found.bandwidth.append(self.roof.found)
            if self.plan.tune:
                matrices = self.matrices if self.config is None else sizes(self.config)
                with self._process() as tuning:
                    self.found.tuned += tuned(tuning, self.threads, matrices, self.say)
            if self.matrices and self.plan.matrix_rows:
                with self._process() as multiplying:
                    for result in products(multiplying, self.plan, self.roof, self.matrices, self.say):
                        self._add(result)
            if self.plan.micro_rows:
                with self._process() as working:
                    for result in small(working, self.plan, self.roof, self.config, self.matrices, self.say):
                        self._add(result)
            if self.model is not None and (self.plan.model_rows or self.plan.profile):
                self._rows_of(self.model)

    def say(self, what: str) -> None:
        """Show in the progress line what is being done."""
        self._say(f"{what}, {self.threads} threads")

    def _process(self, **options: Any) -> Worker:
        return engine_process(self.plan.engine, self.threads, devices=self.plan.devices, **options)

    def _rows_of(self, model: Model) -> None:
        groups = self.plan.by_kv_cache()
        verdicts = self._judge(model, groups)
        if not any(verdict["passed"] for verdict in verdicts.values()):
            return
        with ExitStack() as stack:
            ours = stack.enter_context(self._process())
            self._open_peers(stack, model)
            for kv_cache, cases in groups.items():
                if verdicts[kv_cache]["passed"]:
                    self._timed(ours, model, verdicts[kv_cache], kv_cache, cases)
            for name, peer in self.peers.items():
                _add_facts(self.of_peers[name], peer)

    def _judge(self, model: Model, groups: Groups) -> dict[str | None, Any]:
        """Verdicts by KV cache; one that does not pass has no speed. The engine is judged in its own process: judging
        leaves much in memory, and may use compiled programs that are kept.
        """
        verdicts = {}
        with self._process(timed=False) as judging:
            for kv_cache, cases in groups.items():
                self.say(f"judging {self.plan.engine}" + ("" if kv_cache is None else f", KV cache {kv_cache}"))
                rows = cases + [("decode", {})] * (self.plan.profile and kv_cache == self.plan.kv_cache)
                verdicts[kv_cache] = judging.ask("judge", path=str(model.judged), kv_cache=kv_cache, rows=rows)
        for kv_cache, verdict in verdicts.items():
            if not verdict["passed"]:
                missing = "[not-offered]" in verdict["text"]
                self._refused(groups[kv_cache], "not offered" if missing else "not passed", verdict["text"])
                if not missing:
                    self._add_engine(verdict)
        return verdicts

    def _add_engine(self, verdict: dict[str, Any]) -> Engine:
        options = {} if verdict["kv_cache"] is None else {"kv_cache": str(verdict["kv_cache"])}
        options |= {"devices": str(self.plan.devices)} if self.plan.devices > 1 else {}
        engine = Engine(name=self.plan.engine, threads=self.threads, options=options, passed=verdict["passed"],
                        judged=verdict["text"])  # fmt: skip
        self.found.engines.append(engine)
        return engine

    def _open_peers(self, stack: ExitStack, model: Model) -> None:
        for text, files in self.files.items():
            peer = named(text).label
            own = (row for row in self.plan.model_rows if row in (*OF_A_PEER, "serve"))
            rows = [(row, case) for row in own for case in self.plan.cases(row)]
            try:
                passed, judged = judged_peer(text, self.threads, files.judged, self.say)
                engine = Engine(name=peer, threads=self.threads, options={}, passed=passed, judged=judged)
                if passed is False:
                    self._refused(rows, "not passed", judged, peer)
                    self.found.engines.append(engine)
                    continue
                self.say(f"opening {peer}")
                child = stack.enter_context(peer_process(text, self.threads))
                capacity, vocab = self.plan.capacity(), model.config.vocab
                opened = child.ask("open", path=str(files.timed), capacity=capacity, vocab=vocab)
            except EngineError as error:  # it is left out, like one that fails later
                for row, case in rows:
                    self._missing(row, case, error, peer)
                continue
            engine.options, engine.load = opened["options"], opened["load"]
            self.peers[peer], self.of_peers[peer], self.of_files[peer] = child, engine, files
            self.found.engines.append(engine)

    def _refused(self, cases: list[tuple[str, Case]], status: Status, why: str, name: str | None = None) -> None:
        """Rows without a speed. name: of a peer; None for the benchmark's engine."""
        for row, case in cases:
            engine = name or self.plan.engine
            self._add(Result(row=row, engine=engine, threads=self.threads, case=case, status=status, why=why))

    def _missing(self, row: str, case: Case, error: EngineError, name: str | None = None) -> None:
        """A row that an engine does not offer, or failed in. Raises ``error`` if the benchmark's engine has ended."""
        if error.kind == "worker" and name is None:
            raise error
        if error.kind == "not-offered":
            self._refused([(row, case)], "not offered", f"the engine has no {error.thing}", name)
        else:
            self._refused([(row, case)], "failed", str(error), name)

    def _timed(
        self, ours: Worker, model: Model, verdict: dict[str, Any], kv_cache: str | None, cases: list[tuple[str, Case]]
    ) -> None:
        engine = self._add_engine(verdict)
        self.say(f"opening {model.name}")
        opened = self._opened(ours, model, kv_cache)
        engine.load, self.sizes = opened["load"], opened["sizes"]
        engine.packed_bytes, engine.head_bytes, engine.kv_bytes = (self.sizes.get(k) for k in ("packed", "head", "kv"))
        for row, case in cases:
            if row == "serve":
                continue  # together, below: every server is started once
            self.say(f"{row} {shown(case)}")
            if row == "start":
                self._start(model, engine)
            else:
                self._rounds(ours, model.config, row, case)
        if together := [case for row, case in cases if row == "serve"]:
            self._serve(model, kv_cache, together)
        if kv_cache == self.plan.kv_cache and self.plan.profile:
            self._profile(ours)
        _add_facts(engine, ours)

    def _opened(self, child: Worker, model: Model, kv_cache: str | None) -> dict[str, Any]:
        return child.ask("open", path=str(model.path), capacity=self.plan.capacity(), kv_cache=kv_cache)

    def _rounds(self, ours: Worker, config: ModelConfig, row: str, case: Case) -> None:
        """One case: all engines in turn, ``plan.runs`` rounds after one that is not counted."""
        own, first, roofs = "decode" if row == "kv" else row, None, list[float]()
        by_bytes = "context" in case and row != "batch" and bool(self.sizes or self.peers)
        seconds: dict[str, list[list[float]]] = defaultdict(list)
        peers = {name: peer for name, peer in self.peers.items() if row in OF_A_PEER}
        for number in range(self.plan.runs + 1):
            try:
                got = {self.plan.engine: ours.ask("measure", row=own, case=case)}
            except EngineError as error:
                self._missing(row, case, error)
                return
            got |= self._round_of_peers(peers, row, case)
            if number == 0:
                first = got[self.plan.engine]["first"]
                continue
            if by_bytes:
                roofs.append(self.roof.sample())
            for name, answer in got.items():
                seconds[name].append(answer["seconds"])
        means = {name: [statistics.mean(r) for r in rounds] for name, rounds in seconds.items()}
        for name in [name for name in seconds if name == self.plan.engine or name in peers]:
            timing = Timing.of([s for r in seconds[name] for s in r])
            result = row_of_a_model(row, name, self.threads, config, case, timing)
            if by_bytes:
                sizes = self.sizes if name == self.plan.engine else None
                result.bytes_moved = bytes_of_a_step(name, row, config, case, self.plan.runs, sizes)
                if result.bytes_moved is not None:
                    medians = [statistics.median(r) for r in seconds[name]]
                    result.roofline_fraction = roofline_fraction(result.bytes_moved, medians, roofs)
            if name == self.plan.engine:
                result.first = first
            else:
                result.ratio = paired_ratio(means[name], means[self.plan.engine])
            self._add(result)

    def _round_of_peers(self, peers: dict[str, Worker], row: str, case: Case) -> dict[str, dict[str, Any]]:
        """What each peer measured. One that fails is left out of this row; one whose process ended, of all rows."""
        got = {}
        for name, peer in [*peers.items()]:
            try:
                got[name] = peer.ask("measure", row=OF_A_PEER[row], case=case)
            except EngineError as error:
                self._missing(row, case, error, name)
                del peers[name]
                if error.kind == "worker":
                    del self.peers[name]
        return got

    def _start(self, model: Model, engine: Engine) -> None:
        """The first token of a new process: with an empty cache folder, then with what the first process left there."""
        with tempfile.TemporaryDirectory(prefix="start-", dir=cache_folder()) as cache:
            for what in ("cold", "warm"):
                with self._process(cache=cache) as child:
                    opened = self._opened(child, model, self.plan.kv_cache)
                    engine.warm_memory = child.ask("facts")["peak_memory"]
                setattr(engine, what, opened["first"])
                timing = Timing.of([opened["load"] + (opened["first"] or 0)])
                self._add(Result(
                    row="start", engine=self.plan.engine, threads=self.threads, case={"cache": what},
                    status="measured", unit="load and first token", timing=timing, first=opened["first"],
                ))  # fmt: skip

    def _serve(self, model: Model, kv_cache: str | None, cases: list[Case]) -> None:
        peers = {name: (peer, self.of_files[name].timed) for name, peer in self.peers.items()}
        missing = partial(self._missing, "serve")
        for result in served(self.plan, self.threads, model, kv_cache, peers, cases, self.say, missing):
            self._add(result)

    def _profile(self, ours: Worker) -> None:
        """The operations of a decode step, and the whole step."""
        case = {"context": (self.plan.contexts or (64,))[0], "steps": self.plan.steps}
        self.say("profile")
        try:
            self.found.profiles.append(profile_of(ours, self.roof, self.threads, case, self.plan.runs))
        except EngineError as error:
            self._missing("profile", case, error)

    def _add(self, *results: Result) -> None:
        self.found.results += results


def _add_facts(engine: Engine, process: Worker) -> None:
    """Add versions, flags and peak memory, after the last row."""
    facts = process.ask("facts")
    engine.versions, engine.flags, engine.peak_memory = facts["versions"], facts["flags"], facts["peak_memory"]
