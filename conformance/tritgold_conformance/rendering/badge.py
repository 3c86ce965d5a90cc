"""A badge: a small SVG with what was judged, in which mode, and how many levels passed.

Green: the engine conforms at every level. ``next_tokens`` and ``statistics`` count only if logits or trace were not
assessed, which are more precise; ``packed_bytes``, loops and text count only if the engine has them. Any other level
that was not assessed makes the badge blue. Grey: nothing was checked, or no verdict. The title has the coverage.
"""

from tritgold_conformance.rendering.escaping import escaped, name
from tritgold_conformance.rendering.wording import counted
from tritgold_conformance.results.coverage import coverage_line
from tritgold_conformance.results.report import Report

GREEN, BLUE, ORANGE, RED, GREY = "#2e7d32", "#1565c0", "#a84b00", "#b71c1c", "#616161"
_LABEL = "tritgold"
_HEIGHT, _WIDE, _PAD = 20, 6.1, 8.0  # pixels: height, width of an average character at 11 px, space at each side


def badge(report: Report) -> str:
    """The SVG, self-contained; its title has the status of every level."""
    says, colour = _says(report)
    if report.in_process:  # such an engine can change the judge, so it is never green
        says, colour = f"{says} · in process", BLUE if colour == GREEN else colour
    title = f"{_LABEL}: {says}. " + "; ".join(f"{level} {v.status}" for level, v in report.levels.items())
    title += f". {name(report.engine.name)} on {name(report.model)}"
    title += "" if report.coverage is None else f". Covered: {coverage_line(report.coverage)}"
    left, right = (len(text) * _WIDE + 2 * _PAD for text in (_LABEL, says))
    width = left + right
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{_HEIGHT}" role="img"'
        f' aria-label="{escaped(title)}"><title>{escaped(title)}</title>'
        f'<rect width="{width:.0f}" height="{_HEIGHT}" rx="3" fill="{colour}"/>'
        f'<path d="M3 0H{left:.1f}V{_HEIGHT}H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#3d3d3d"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,Geneva,sans-serif" font-size="11" text-anchor="middle">'
        f"{_text(_LABEL, left / 2)}{_text(says, left + right / 2)}</g></svg>\n"
    )


def _text(text: str, middle: float) -> str:
    length = len(text) * _WIDE  # textLength fits the text into its box with any font
    return f'<text x="{middle:.1f}" y="14" textLength="{length:.1f}">{escaped(text)}</text>'


def _says(report: Report) -> tuple[str, str]:
    levels = list(counted(report).values())
    passed = sum(level.status == "passed" for level in levels)
    failed = sum(level.status in ("failed", "known failures") for level in levels)
    known = sum(level.status == "known failures" for level in levels)
    mode = name(report.mode)
    if report.problem is not None:
        return "could not judge", GREY
    if report.verdict == "nothing was checked" or not passed + failed:
        return f"nothing was checked · {mode}", GREY
    if report.verdict == "does not conform" or (failed > known):
        return f"does not conform: {failed} of {len(levels)} levels fail · {mode}", RED
    if report.exit_code:
        return f"stale xfail entries · {mode}", RED
    if report.verdict == "known failures only" or known:
        return f"known failures in {known} of {len(levels)} levels · {mode}", ORANGE
    return f"conforms {passed}/{len(levels)} levels · {mode}", GREEN if passed == len(levels) else BLUE
