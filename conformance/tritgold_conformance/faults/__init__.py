"""The library of faults: what engines of ternary models have done wrong, each as a small change of the golden model.

``fault(name)`` finds one, ``FAULTS`` has all of them by name. ``tritgold faults`` lists them.
"""

from tritgold_conformance.faults import rules
from tritgold_conformance.faults.fault import Fault
from tritgold_conformance.faults.library import collect, named

FAULTS: dict[str, Fault] = collect(rules)


def fault(name: str) -> Fault:
    """The fault of this name. Raises EngineError (``unknown-fault``) naming those that are nearest."""
    return named(FAULTS, name)
