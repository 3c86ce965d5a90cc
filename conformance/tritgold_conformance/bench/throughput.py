"""Seconds as speeds: tokens and multiply-accumulates a second, and the bytes that a step has to read."""

from tritgold.config import ModelConfig
from tritgold_conformance.bench import memory
from tritgold_conformance.bench.plan import Case
from tritgold_conformance.bench.results import Result
from tritgold_conformance.bench.timing import Timing

_UNITS = {"batch": "step", "block-diffusion": "text"}


def row_of_a_model(row: str, engine: str, threads: int, config: ModelConfig, case: Case, timing: Timing) -> Result:
    """A row without bytes. A prompt is one unit of ``tokens`` tokens, of which the head sees the last alone; a step of
    a batch one of as many as there are sequences; a text of block diffusion takes more passes than its tokens say.
    """
    tokens: int = case.get("tokens") or case.get("sequences", 1)
    heads = case.get("sequences", 1)
    macs = tokens * memory.ternary_weights(config) + heads * memory.head_weights(config)
    blocks = row == "block-diffusion"
    return Result(
        row=row, engine=engine, threads=threads, case=case, status="measured", units=tokens, timing=timing,
        unit=_UNITS.get(row, "token" if "context" in case else "prompt"), per_second=tokens / timing.median,
        gmacs=None if blocks else macs / timing.median / 1e9,
    )  # fmt: skip


def bytes_of_a_step(
    engine: str, row: str, config: ModelConfig, case: Case, runs: int, sizes: dict[str, int] | None
) -> int | None:
    """Bytes that one decode step reads: every ternary weight, the head, and the KV cache so far.

    row: ``greedy`` may read a screen in place of the head. sizes: of the benchmark's engine, by its own account, empty
    where it gives none; None for a peer. The engine goes on from round to round, as transformers does; the rounds of
    llama.cpp all begin at the context.
    """
    weights, head, kv = memory.ternary_weights(config), memory.head_weights(config), memory.kv_values(config)
    positions = case["context"] + case["steps"] * (runs + 1) // 2
    if sizes is not None:
        read = sizes.get("screen" if row == "greedy" else "head", 0)
        return sizes["packed"] + read + sizes["kv"] * positions if sizes else None
    if engine == "llama.cpp":  # TQ2_0, and float16 for head and cache
        return weights * 66 // 256 + 2 * head + 2 * kv * (case["context"] + case["steps"] // 2)
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
