"""Texts that several reports share, and the levels that they leave out."""

import math
from collections.abc import Callable, Mapping

from tritgold_conformance.comparing.compare import place
from tritgold_conformance.contract.clock import Speed
from tritgold_conformance.rendering.escaping import clean, number
from tritgold_conformance.results.cases import Case
from tritgold_conformance.results.diagnosis import Diagnosis, Divergence, Named, Ranked
from tritgold_conformance.results.levels import WHERE_OFFERED
from tritgold_conformance.results.report import Level, Report, Side, Status

FITS = 1e-5  # a distance below which outputs are equal up to float32's roundings
# Level -> a more precise level, which replaces it.
WEAKER = {"next_tokens": "logits", "statistics": "trace"}
IN_PROCESS = "judged in the judge's own process"  # shown with every verdict, as such an engine can change the verdict
# A sign for each status, because a report may be printed without colours.
MARKS: dict[Status, str] = {"passed": "✓", "failed": "✗", "known failures": "≈", "not assessed": "-"}


def counted(report: Report) -> dict[str, Level]:
    """The levels of a full judgement; those of WEAKER only if they were assessed or the more precise one was not.

    Those of WHERE_OFFERED count only if they were assessed: an engine need not read packed bytes, generate or tokenize.
    """

    def assessed(key: str) -> bool:
        return key in report.levels and report.levels[key].status != "not assessed"

    left_out = {key for key, better in WEAKER.items() if not assessed(key) and assessed(better)}
    left_out |= {key for key in WHERE_OFFERED if not assessed(key)}
    return {key: level for key, level in report.levels.items() if key not in left_out}


def verdict_words(report: Report, others: Mapping[str, str] = {}) -> str:
    """The verdict; if levels of a full judgement were not assessed, their names; and IN_PROCESS if that applies.

    others: verdict -> text to use instead.
    """
    levels = counted(report)
    absent = [key for key, level in levels.items() if level.status == "not assessed"]
    said = others.get(report.verdict, report.verdict)
    if report.verdict == "conforms" and absent:
        passed = len(levels) - len(absent)
        said = f"conforms at {passed} level{'s' if passed > 1 else ''}; not assessed: {', '.join(absent)}"
    said += f"; by policy {policy}" if (policy := policy_of(report.mode)) else ""
    return said + (f"; {IN_PROCESS}" if report.in_process else "")


def policy_of(mode: str) -> str:
    """The precision that a mode's id names; empty for float32's.

    >>> policy_of("golden.kv-f16/1"), policy_of("golden/1")
    ('kv-f16', '')
    """
    return mode.partition("/")[0].partition(".")[2]


def other_mode(report: Report) -> str:
    """A sentence for an engine that follows another arithmetic; otherwise empty."""
    if not report.matches:
        return ""
    name, policy = report.matches.partition("/")[0].partition(".")[0], policy_of(report.matches)
    option = f"--policy {policy}" if policy else f"--mode {name}"
    return f"It matches mode {report.matches}, not {report.mode}, by which it was judged: {option}"


def speeds(report: Report) -> list[tuple[str, Speed]]:
    """Name and speed of the sides that were timed."""
    sides = (report.engine.name, report.engine.speed), (f"{report.reference.name} (golden)", report.reference.speed)
    return [(name, speed) for name, speed in sides if speed is not None]


def versions(side: Side, safe: Callable[[object], str]) -> str:
    """The versions of an engine's packages. safe: escapes a name for the report."""
    return ", ".join(f"{safe(key)} {safe(version)}" for key, version in side.versions.items()) or "no versions given"


def details(case: Case) -> list[str]:
    """Lines with more details of a failure than its message."""
    c = case.comparison
    lines = [clean(case.message)]
    if c is not None and c.worst:
        lines.append(f"worst at {place(c.name, c.worst)}: engine {c.engine!r}, golden {c.golden!r}")
    if c is not None and c.why:
        lines.append(f"allowed: {clean(c.why)}")
    return lines


def diagnosis_lines(found: Diagnosis) -> list[str]:
    """The faults, the divergences that they do not explain, and the nearest candidates; plain text."""
    lines = []
    if found.first_divergence is not None:
        lines.append(f"first divergence: {_divergence(found.first_divergence)}")
    for fault in found.faults:
        line = f"{fault.fault}: {fault.summary.rstrip('.')}; {distances(fault)}"
        lines.append(line + (f"; on this input the same as {', '.join(fault.same)}" if fault.same else ""))
    lines += [f"none of the known faults explains {_divergence(d)}" for d in found.unexplained]
    lines += [found.nothing] if found.clean else []
    if found.unexplained and found.ranking:
        near = (f"{r.fault} ({candidate(r)})" for r in found.ranking[:5])
        lines.append(f"nearest candidates, none of which explains it: {', '.join(near)}")
    return lines


def distances(fault: Named) -> str:
    """How near a fault brings the golden model to the engine, and how near the next best does; plain text."""
    if fault.tokens_only:
        return f"by tokens alone ({fault.level}): one token has all of the probability, so no distance is known"
    line = f"with it the golden model is {distance(fault.distance)} from the engine ({fault.level})"
    line += f", without it {distance(fault.golden)}"
    if fault.next_best is not None:
        line += f"; the next best is {fault.next_best[0]}, {distance(fault.next_best[1])} away"
    if fault.codes is not None:
        line += f"; {fault.codes[0]:,} of the text's {fault.codes[1]:,} codes differ"
    return line


def _divergence(d: Divergence) -> str:
    said = extent(d)
    return f"{d.name} ({d.level}; {where(d)})" + (f": {said}" if said else "")


def extent(d: Divergence) -> str:
    """How many values of the array differ at all, and their class; plain text."""
    c = d.comparison
    many = f"{c.differing:,} of {c.compared:,} values differ" if c.differing else ""
    return "; ".join(said for said in (many, d.what) if said)


def where(d: Divergence) -> str:
    """Layer, position and channel; for arrays with heads the worst element instead of the channel."""
    worst = d.comparison.worst and place(d.name, d.comparison.worst)
    flat = bool(worst) and worst != str(d.comparison.worst)
    places = (("layer", d.layer), ("position", d.position), ("channel", None if flat else d.channel))
    found = [f"{what} {at}" for what, at in places if at is not None] + [f"worst at {worst}"] * flat
    return ", ".join(found) or "as a whole"


def candidate(ranked: Ranked) -> str:
    """How near a candidate is at the first divergence; and that it is wrong elsewhere, where it fits there.

    >>> candidate(Ranked(fault="silu", distance=0.0, explains=False))
    'fits here, but breaks outputs that are right'
    """
    if ranked.distance is not None and ranked.distance <= FITS and not ranked.explains:
        return "fits here, but breaks outputs that are right"
    return number(ranked.distance, 2)


def distance(value: float) -> str:
    """A distance of a diagnosis as text; -1 means not comparable."""
    if value < 0 or not math.isfinite(value):
        return "not comparable"
    return "0" if value <= 1e-8 else f"{value:.2g}"
