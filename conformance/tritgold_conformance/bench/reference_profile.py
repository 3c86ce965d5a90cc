"""A decode step of the golden model, operation by operation: the time spent in each function of its arithmetic.

The functions are those of the step itself, each with a clock around it; nothing is run twice.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import Arithmetic
from tritgold.model import forward
from tritgold_conformance.golden.reference_engine import ReferenceEngine
from tritgold_conformance.golden.run import judging_tokens


def parts(engine: ReferenceEngine, context: int) -> list[dict[str, Any]]:
    """``name``, ``calls``, ``seconds`` of all calls, ``bytes_moved`` (0: not known), of one step after ``context``
    positions. Seconds of an operation that calls another contain it; here none does.
    """
    config, weights = engine._config, engine._weights
    cache = getattr(engine, "_profiled", None)
    if cache is None or cache.length != context:
        cache = Float32Cache(config, context + 1)
        forward(judging_tokens(context, config.vocab, seed=2), weights, config, cache, last_only=True)
        engine._profiled = cache  # type: ignore[attr-defined]
    spent: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)

    def clocked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                spent[name] += time.perf_counter() - begin
                calls[name] += 1

        return call

    functions = {f.name: getattr(engine._op, f.name) for f in fields(Arithmetic)}
    timed = {name: clocked(name, function) for name, function in functions.items() if function is not None}
    forward([1], weights, config, cache, arithmetic=replace(engine._op, **timed))
    cache.truncate(context)
    return [{"name": n, "calls": calls[n], "bytes_moved": 0, "seconds": s} for n, s in spent.items()]
