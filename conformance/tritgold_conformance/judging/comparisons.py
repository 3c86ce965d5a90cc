"""Levels that consist of comparisons: operations, edge cases, packed bytes, statistics."""

from collections.abc import Iterable

from tritgold.formats.untrusted_text import printable
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.results.report import Level


def level_of(outcomes: Iterable[Comparison | str]) -> tuple[Level, list[Comparison]]:
    """The level of these outcomes, and their Comparisons. A name among the outcomes is not assessed."""
    judged = list(outcomes)
    comparisons = [c for c in judged if isinstance(c, Comparison)]
    absent = [name for name in judged if isinstance(name, str)]
    failed = sum(not c.passed for c in comparisons)
    level = Level(
        status="failed" if failed else "passed" if comparisons else "not assessed",
        compared=len(comparisons),
        failed=failed,
        not_assessed=len(absent),
        absent=absent,
        note=_note(comparisons) or "the engine gave none of them",
    )
    return level, comparisons


def lacks(note: str) -> Level:
    """A level that is not assessed. note: why."""
    return Level(status="not assessed", note=note)


def _note(comparisons: list[Comparison]) -> str:
    """The first failure; without one, how many are equal, within the tolerance, and different at ties."""
    failed = [c for c in comparisons if not c.passed]
    if failed:
        return f"first: {failed[0].name}: {failed[0].what}"
    counts = {v: sum(c.outcome == v for c in comparisons) for v in ("equal", "within", "ties")}
    return ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n)


def unknown_names(names: list[str]) -> str:
    """Text with the first three of the unknown names.

    >>> unknown_names(["layer.0.q"])
    'unknown names: layer.0.q'
    """
    return f"unknown names: {printable(', '.join(names[:3]))}{' ...' if len(names) > 3 else ''}"
