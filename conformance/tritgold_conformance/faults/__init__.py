"""The library of faults: what engines of ternary models have done wrong, each as a small change of the golden model.

``fault(name)`` finds one, ``FAULTS`` has all of them by name. ``tritgold faults`` lists them.
"""

import difflib

from tritgold.errors import EngineError
from tritgold_conformance.faults import (
    accumulator,
    activation,
    attention,
    decode,
    graph,
    kv_cache,
    packing,
    scale,
    tokenizer,
)
from tritgold_conformance.faults.fault import Fault

_MODULES = (packing, scale, activation, accumulator, graph, attention, kv_cache, decode, tokenizer)
FAULTS: dict[str, Fault] = {fault.name: fault for module in _MODULES for fault in module.FAULTS}


def fault(name: str) -> Fault:
    """The fault of this name. Raises EngineError (``unknown-fault``) naming those that are nearest."""
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, n=3, cutoff=0.4)
        hint = f"nearest: {', '.join(near)}" if near else "tritgold faults lists them"
        raise EngineError("no such fault", kind="unknown-fault", got=repr(name), hint=hint)
    return FAULTS[name]
