"""A level that is a list of comparisons: operations, edge cases, packed bytes, statistics."""

from collections.abc import Iterable

from tritgold.formats.untrusted_text import printable
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.results.report import Level


def level_of(outcomes: Iterable[Comparison | str]) -> tuple[Level, list[Comparison]]:
    """A level of comparisons, and of names that are not assessed."""
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
    """A level that could not be assessed, and why."""
    return Level(status="not assessed", note=note)


def _note(comparisons: list[Comparison]) -> str:
    """The first failure, or how many were equal, within, at ties."""
    failed = [c for c in comparisons if not c.passed]
    if failed:
        return f"first: {failed[0].name}: {failed[0].what}"
    counts = {v: sum(c.outcome == v for c in comparisons) for v in ("equal", "within", "ties")}
    return ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n)


def unknown_names(names: list[str]) -> str:
    """The first of the names that are not ours.

    >>> unknown_names(["layer.0.q"])
    'unknown names: layer.0.q'
    """
    return f"unknown names: {printable(', '.join(names[:3]))}{' ...' if len(names) > 3 else ''}"
