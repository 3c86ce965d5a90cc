"""The library of faults: what engines of ternary models have done wrong, each as a small change of the golden model.

``fault(name)`` finds one, ``fault("NAME@PLACE")`` at one place; ``FAULTS`` has all of them by name, and ``tritgold
faults`` lists them.
"""

from tritgold_conformance.faults import rules
from tritgold_conformance.faults.fault import Fault
from tritgold_conformance.faults.library import collect, named
from tritgold_conformance.faults.places import fault_at

FAULTS: dict[str, Fault] = collect(rules)


def fault(name: str) -> Fault:
    """The fault of this name, ``NAME@PLACE`` where it is at one place alone (``places``).

    Raises EngineError (``unknown-fault``) naming those that are nearest.
    """
    name, _, place = name.partition("@")
    return fault_at(named(FAULTS, name), place) if place else named(FAULTS, name)
