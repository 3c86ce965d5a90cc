"""The row ``serve``: servers with so many clients at once, in turn; ours over HTTP and by direct calls of its core."""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tritgold.errors import EngineError
from tritgold_conformance.bench.clients import Answered, Load, asked, over_http
from tritgold_conformance.bench.json_rpc import Worker
from tritgold_conformance.bench.models import Model
from tritgold_conformance.bench.plan import SERVED, Case, Plan
from tritgold_conformance.bench.processes import serving_process
from tritgold_conformance.bench.results import Result
from tritgold_conformance.bench.rows import not_offered
from tritgold_conformance.bench.synthetic import Say
from tritgold_conformance.bench.throughput import shown
from tritgold_conformance.bench.timing import Timing, paired_ratio

LEAST = 8  # requests of a round, if not two for each client
Way = Callable[[list[list[int]], int, int], Load]  # (prompts, clients, tokens of each answer)
Named = tuple[str, str]  # engine and way: http, direct
Missing = Callable[[Case, EngineError, str], None]


def http_way(name: str, port: int) -> Way:
    """A server on this machine. Raises EngineError ``peer`` for what it refuses or does not finish."""

    def work(prompts: list[list[int]], clients: int, tokens: int) -> Load:
        try:
            return asked(over_http(port, tokens), prompts, clients)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            raise EngineError(f"did not answer every request: {text}", kind="peer", thing=name) from error

    return work


def direct_way(process: Worker) -> Way:
    """Calls of our core, by clients in its own process."""

    def work(prompts: list[list[int]], clients: int, tokens: int) -> Load:
        said = process.ask("direct", prompts=prompts, clients=clients, tokens=tokens)
        return Load([Answered(*one) for one in said["answered"]], said["seconds"])

    return work


class Prompts:
    """Random ids of a vocabulary; no two prompts begin with the same token, as far as there are tokens."""

    def __init__(self, vocab: int) -> None:
        self._vocab, self._count, self._draw = vocab, 0, np.random.default_rng(7)

    def next(self, count: int, length: int) -> list[list[int]]:
        """So many new prompts."""
        low = min(3, self._vocab - 1)
        drawn = self._draw.integers(low, self._vocab, (count, length))
        drawn[:, 0] = low + (self._count + np.arange(count)) % (self._vocab - low)
        self._count += count
        found: list[list[int]] = drawn.tolist()
        return found


def served(
    plan: Plan, threads: int, model: Model, kv_cache: str | None, peers: dict[str, tuple[Worker, Path]],
    cases: list[Case], say: Say, missing: Missing,
) -> Iterator[Result]:  # fmt: skip
    """Ours and the peers' servers, each with SERVED texts in a pass; every case with all of them in turn.

    peers: by name, each with its file. missing: receives a case that an engine failed in, the error and its name.
    Raises MissingDependencyError without the libraries of the extra ``serve``.
    """
    if plan.engine not in ("xla", "reference"):
        _all_missing(cases, not_offered("serve"), plan.engine, missing)
        return
    prompts, ways = Prompts(model.config.vocab), dict[Named, Way]()
    with serving_process(plan.engine, threads) as serving:
        try:
            say("serving")
            options = ["--backend", plan.engine, "--max-sequences", str(SERVED), "--devices", str(plan.devices)]
            options += ["--kv-cache", kv_cache] if kv_cache is not None else []
            port = serving.ask("open", path=str(model.path), options=options)["port"]
            ways |= {
                (plan.engine, "http"): http_way(plan.engine, port),
                (plan.engine, "direct"): direct_way(serving),
            }
        except EngineError as error:
            _all_missing(cases, error, plan.engine, missing)
        for name, (peer, file) in peers.items():
            try:
                say(f"serving by {name}")
                opened = peer.ask("serve", path=str(file), slots=SERVED, positions=plan.capacity())
                ways[name, "http"] = http_way(name, opened["port"])
            except EngineError as error:
                _all_missing(cases, error, name, missing)
        for (name, _), way in [*ways.items()]:
            try:
                for clients in (1, SERVED):  # so that all programs are compiled before they are timed
                    way(prompts.next(clients, cases[0]["prompt"]), clients, cases[0]["steps"])
            except EngineError as error:
                ways = {key: kept for key, kept in ways.items() if key[0] != name}
                _all_missing(cases, error, name, missing)
        for case in cases:
            say(f"serve {shown(case)}")
            yield from served_rows(ways, case, plan.runs, threads, plan.engine, prompts, missing)


def _all_missing(cases: list[Case], error: EngineError, name: str, missing: Missing) -> None:
    for case in cases:
        missing(case, error, name)


def served_rows(
    ways: dict[Named, Way], case: Case, rounds: int, threads: int, engine: str, prompts: Prompts, missing: Missing
) -> list[Result]:
    """All ways in turn, ``rounds`` rounds: for each way the times to the first token, then those of whole answers.

    engine: the benchmark's; a way that raises is left out, and ``missing`` gets the case, the error and its name.
    Percentiles are of all answers of all rounds; tokens a second, of all clients together, the median over rounds.
    """
    count, loads = max(LEAST, 2 * case["clients"]), {way: list[Load]() for way in ways}
    for _ in range(rounds):
        asked_for = prompts.next(count * len(loads), case["prompt"])
        for n, way in enumerate([*loads]):
            try:
                mine = asked_for[n * count : (n + 1) * count]
                loads[way].append(ways[way](mine, case["clients"], case["steps"]))
            except EngineError as error:
                del loads[way]
                missing({**case, "way": way[1]}, error, way[0])
    ours = loads.get((engine, "http"))
    return [result for way, found in loads.items() for result in _pair(way, found, ours, case, threads, engine)]


def _pair(
    way: Named, loads: list[Load], ours: list[Load] | None, case: Case, threads: int, engine: str
) -> list[Result]:
    """The two results of a way."""
    name, how = way
    answered = [answer for load in loads for answer in load.answered]
    tokens = case["steps"]
    shared: dict[str, Any] = {"row": "serve", "engine": name, "threads": threads, "status": "measured"}
    first, whole = (
        Result(case={**case, "way": how, "until": until}, unit=unit, units=units, timing=Timing.of(seconds), **shared)
        for until, unit, units, seconds in (
            ("first token", "first token", 1, [answer.first for answer in answered]),
            ("end", "answer", tokens, [answer.whole for answer in answered]),
        )
    )
    whole.per_second = median(load.tokens / load.seconds for load in loads)
    if name != engine and ours is not None:
        both = loads, ours
        first.ratio = paired_ratio(*([median(a.first for a in load.answered) for load in side] for side in both))
        whole.ratio = paired_ratio(*([load.seconds / load.tokens for load in side] for side in both))
    return [first, whole]
