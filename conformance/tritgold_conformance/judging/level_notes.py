"""What stands beside a level in the report: its figures in one line."""

from tritgold.formats.untrusted_text import printable
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.free_running import FreeRunning
from tritgold_conformance.comparing.logits import LogitsVerdict


def operations_note(comparisons: list[Comparison]) -> str:
    """The first failure, or how many were equal, within, at ties."""
    failed = [c for c in comparisons if not c.passed]
    if failed:
        return f"first: {failed[0].name}: {failed[0].what}"
    counts = {v: sum(c.outcome == v for c in comparisons) for v in ("equal", "within", "ties")}
    return ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n)


def trace_note(free: FreeRunning, unknown: list[str], hidden: bool) -> str:
    """The divergence, or the noise. hidden: codes are not shown, and no logits told which ties broke."""
    if free.divergence:
        return f"first divergence: {free.divergence.name}: {free.divergence.what}"
    notes = []
    if free.compared:
        notes.append(f"float noise at most {free.worst:.1e} of the token's largest value")
    if free.ties:
        notes.append(f"broken ties followed: {len(free.ties)}")
    if hidden:
        blind = f"{int(free.blind.sum())} of {len(free.blind)} positions"
        notes.append(
            f"the trace shows no codes: {blind} see one near a tie, where a broken tie and a bug look alike, "
            "and are held to what breaking ties at random does to the golden model's own trace"
        )
    if unknown:
        notes.append(unknown_names(unknown))
    return "; ".join(notes)


def unknown_names(names: list[str]) -> str:
    """The first of the names that are not ours.

    >>> unknown_names(["layer.0.q"])
    'unknown names: layer.0.q'
    """
    return f"unknown names: {printable(', '.join(names[:3]))}{' ...' if len(names) > 3 else ''}"


def logits_note(verdict: LogitsVerdict) -> str:
    """How far, at most, and what a reader of the text would notice."""
    positions = verdict.positions
    equal = sum(p.argmax[0] == p.argmax[1] for p in positions)
    near = sum(p.near_tie for p in positions)
    if verdict.allowed is not None:
        note = f"at most {max(p.relative for p in positions):.1e} of the largest logit; ties too many to search, "
        note += f"held to the golden model's own spread of {verdict.allowed:.1e}"
    else:
        note = f"at most {max(p.explained for p in positions):.1e} of the largest logit"
    if verdict.ties:
        note += f"; broken ties followed: {len(verdict.ties)}"
    note += f"; argmax equal at {equal} of {len(positions)}" + (f" ({near} near ties)" if near else "")
    return f"{note}, KL at most {max(p.kl for p in positions):.1e}"
