"""Which small rows there are, and which cases of each: as data, so that the command line loads nothing for it."""

from collections.abc import Callable
from typing import Any

Cases = Callable[[Any], list[dict[str, Any]]]  # of a Plan


def _sequences(plan: Any) -> list[int]:
    return [n for n in plan.sequences if n in (1, 4, 16)] or list(plan.sequences)


# Of a model's sizes, whether or not its file is there.
SIZED: dict[str, Cases] = {
    "fused": lambda plan: [{"group": g, "tokens": n} for g in ("qkv", "gate-up") for n in plan.tokens or (1, 32)],
    "kv-update": lambda plan: [{"kv": kv, "tokens": n} for kv in plan.kv_caches for n in plan.tokens or (1,)],
    "kv-gather": lambda plan: [{"kv": kv, "tokens": n} for kv in plan.kv_caches for n in plan.tokens or (50, 100)],
    "attention": lambda plan: [{"kv": kv, "context": c} for kv in plan.kv_caches for c in plan.contexts or (512, 2048)],
    "sparse-attention": lambda plan: [
        {"context": (plan.contexts or (512,))[0], "queries": n} for n in plan.tokens or (1, 32, 128)
    ],
    "sparse-linear": lambda plan: [{"keep": "0.5", "tokens": n} for n in plan.tokens or (1, 32, 128)],
    "sample": lambda plan: [{}],
    "schedule": lambda plan: [{"sequences": n} for n in _sequences(plan)],
    "tokenise": lambda plan: [{"words": n} for n in (64, 1024)],
}
# Of one matrix, and of every matrix of a model.
OF_MATRICES: dict[str, Cases] = {"unpack": lambda plan: [{}], "binding": lambda plan: [{}]}
MICRO_ROWS = (*OF_MATRICES, *SIZED)
# Where the threads of a process may run: the processors from the first on, from the last on, or all.
BINDINGS = ("first", "last", "free")
