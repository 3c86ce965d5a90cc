"""Rows of the report from measured rounds: tokens and multiply-accumulates a second, bytes that a step reads."""

import statistics
from collections.abc import Callable
from typing import Any

from tritgold.config import ModelConfig
from tritgold_conformance.bench import memory
from tritgold_conformance.bench.json_rpc import Worker
from tritgold_conformance.bench.peer_names import FORMATS, HEADS, TRANSFORMERS, of_label
from tritgold_conformance.bench.plan import Case
from tritgold_conformance.bench.results import Part, Profile, Result
from tritgold_conformance.bench.roofline import Roof, roofline_fraction
from tritgold_conformance.bench.timing import Timing

_UNITS = {"batch": "step", "block-diffusion": "text", "block-pass": "pass"}


def row_of_a_model(row: str, engine: str, threads: int, config: ModelConfig, case: Case, timing: Timing) -> Result:
    """A row, still without bytes. A prompt is one unit of ``tokens`` tokens, of which the head reads only the last. A
    step of a batch is one unit with a token for each sequence. Block diffusion has no ``gmacs``, because neither the
    number of a text's passes is known nor how many positions they read.
    """
    tokens: int = case.get("tokens") or case.get("sequences", 1)
    heads = case.get("sequences", 1)
    macs = tokens * memory.ternary_weights(config) + heads * memory.head_weights(config)
    blocks = row in ("block-diffusion", "block-pass")
    return Result(
        row=row, engine=engine, threads=threads, case=case, status="measured", units=tokens, timing=timing,
        unit=_UNITS.get(row, "token" if "context" in case else "prompt"), per_second=tokens / timing.median,
        gmacs=None if blocks else macs / timing.median / 1e9,
    )  # fmt: skip


def products_of(
    ask: Callable[[], dict[str, Any]], roof: Roof, runs: int, row: str, case: Case, threads: int,
    weights: int | None,
) -> list[Result]:  # fmt: skip
    """A row for each kernel that multiplies a matrix of ``weights`` weights; if None, for each way of a micro row.

    ask: runs one round of all of them; the first round is not counted. A wrong kernel or way has no speed.
    """
    rounds, roofs, results = list[dict[str, Any]](), list[float](), []
    for number in range(runs + 1):
        answer = ask()
        if number:
            rounds.append(answer)
            roofs += [roof.sample()] if weights is not None and case["tokens"] == 1 else []
    for name, first in rounds[0].items():
        result = Result(row=row, engine=first["by"], threads=threads, case={**case, "way": name}, status="not passed",
                        unit="product" if weights is not None else "call", why=first["wrong"])  # fmt: skip
        results.append(result)
        if first["wrong"]:
            continue
        seconds = [one[name]["seconds"] for one in rounds]
        result.status, result.why, result.timing = "measured", first["why"], Timing.of(seconds)
        if weights is not None:
            result.gmacs = weights * case["tokens"] / result.timing.median / 1e9
        result.bytes_moved = first["bytes_moved"]
        if result.bytes_moved is not None and roofs:
            result.roofline_fraction = roofline_fraction(result.bytes_moved, seconds, roofs)
    return results


def profile_of(engine: Worker, roof: Roof, threads: int, case: Case, runs: int) -> Profile:
    """Each operation of a decode step alone, and what the whole step takes beyond their sum.

    Operations, whole step and read bandwidth are measured in turn; the first round is not counted. case: of the row
    ``decode``. Raises EngineError ``not-offered`` if the engine has no profile.
    """
    rounds, steps, roofs = list[list[dict[str, Any]]](), list[float](), list[float]()
    for number in range(runs + 1):
        parts = engine.ask("profile", context=case["context"])
        whole = engine.ask("measure", row="decode", case=case)["seconds"]
        if number:
            roofs.append(roof.sample())
            rounds.append(parts)
            steps += whole
    measured = [
        Part(**{**same[0], "seconds": Timing.of([part["seconds"] for part in same]).median})
        for same in zip(*rounds, strict=True)
    ]
    step, total = Timing.of(steps).median, sum(part.seconds for part in measured)
    return Profile(
        threads=threads, context=case["context"], parts=measured, total=total, step=step, overhead=step - total,
        roof=statistics.median(roofs),
    )  # fmt: skip


def bytes_of_a_step(
    engine: str, row: str, config: ModelConfig, case: Case, runs: int, sizes: dict[str, int] | None
) -> int | None:
    """Bytes that one decode step reads: every ternary weight, the head, and the KV cache so far.

    row: ``greedy`` may read a screen instead of the head. sizes: as the benchmark's engine reports them, empty if it
    does not; None for a peer. The engine and transformers continue from round to round; each round of llama.cpp begins
    at the context.
    """
    weights, head, kv = memory.ternary_weights(config), memory.head_weights(config), memory.kv_values(config)
    positions = case["context"] + case["steps"] * (runs + 1) // 2
    if sizes is not None:
        read = sizes.get("screen" if row == "greedy" else "head", 0)
        return sizes["packed"] + read + sizes["kv"] * positions if sizes else None
    if engine != TRANSFORMERS:  # its format and its head, and float16 for the cache
        peer = of_label(engine)
        bits = weights * FORMATS[peer.name][1] + head * HEADS[peer.head]
        return int(bits / 8) + 2 * kv * (case["context"] + case["steps"] // 2)
    return 2 * (weights + head + kv * positions)  # bfloat16


def add_scaling(results: list[Result]) -> None:
    """Fill in ``scaling``: how many times faster than the same with one thread."""
    alone = {(r.row, r.engine, shown(r.case)): r.timing for r in results if r.threads == 1 and r.timing is not None}
    for result in results:
        one = alone.get((result.row, result.engine, shown(result.case)))
        if one is not None and result.timing is not None and result.threads > 1:
            result.scaling = one.median / result.timing.median


def shown(case: Case) -> str:
    """A case on one line."""
    return " ".join(f"{name} {value}" for name, value in case.items())
