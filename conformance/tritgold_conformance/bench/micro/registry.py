"""The micro rows by name: functions that make their ways from a case and, except for ``unpack``, a model's sizes."""

import gc
from collections.abc import Callable
from typing import Any

from tritgold.config import ModelConfig
from tritgold_conformance.bench.micro import host, kv, linears
from tritgold_conformance.bench.micro.way import Way
from tritgold_conformance.bench.timing import timed

Make = Callable[[ModelConfig, dict[str, Any], Any], list[Way]]
MAKERS: dict[str, Make] = {
    "fused": linears.fused,
    "kv-update": kv.update,
    "kv-gather": kv.gather,
    "attention": kv.attention,
    "sparse-attention": kv.sparse_attention,
    "sparse-linear": linears.sparse_linear,
    "sample": host.sample,
    "schedule": host.schedule,
    "tokenise": host.tokenise,
}
BRIEF = 2e-3  # seconds: shorter work is repeated until it takes this long


class Ways:
    """The ways of one case, checked once and timed round by round.

    xla: the adapter module ``engines.xla_micro``, None without that engine. config: as JSON, None for a matrix.
    """

    def __init__(self, row: str, case: dict[str, Any], config: dict[str, Any] | None, xla: Any) -> None:
        if row == "unpack":
            self._ways = linears.unpack(case, xla)
        else:
            assert config is not None
            sizes = ModelConfig(**config)
            self._ways = MAKERS[row](sizes, case, xla)
        self._wrong = [_checked(way) for way in self._ways]

    def round(self) -> dict[str, dict[str, Any]]:
        """Seconds of one unit by way; a wrong way has a description instead."""
        gc.collect()
        return {
            (way.name if way.by != "xla" else f"XLA: {way.name}"): {
                "seconds": None if wrong else _seconds(way), "wrong": wrong, "by": way.by, "why": way.why,
                "bytes_moved": way.moved,
            }
            for way, wrong in zip(self._ways, self._wrong, strict=True)
        }  # fmt: skip


def _checked(way: Way) -> str:
    """What is wrong with the result of the first run."""
    try:
        return way.wrong(way.run())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _seconds(way: Way) -> float:
    once = timed(way.run)[0]
    times = max(1, int(BRIEF / max(once, 1e-9)))
    return (once if times == 1 else min(once, sum(timed(way.run, min(times, 200))) / min(times, 200))) / way.units
