"""Diagnoses a mutant as if it were an engine."""

from asked_once import diagnose
from library import engine, golden

from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.results.diagnosis import Diagnosis

TOKENS = 16


def asked(made: Mutant, on: str = "seeded", level: str | None = None, tokens: int = TOKENS) -> Diagnosis:
    return diagnose(golden(on, tokens), engine(made, tokens), on, level, unseen=False)


def names(found: Diagnosis) -> list[str]:
    return [named.fault for named in found.faults]
