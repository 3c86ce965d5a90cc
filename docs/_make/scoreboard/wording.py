"""Words that the pages of the scoreboard share."""

from scoreboard.results import EngineReport, Row

ESCAPED = (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "'"), ("[", "\\["), ("*", "\\*"), ("_", "\\_"))
WORDS = 300  # characters of an engine's own words


def named(report: EngineReport) -> str:
    """An engine and its version."""
    return f"{report.engine} {report.version}"


def special(row: Row) -> list[str]:
    """What is special about a case: SiLU in its config, asked through a server, a note."""
    return [*["`silu`"] * row.case.silu, *["served"] * row.case.served, *[escaped(row.case.note)] * bool(row.case.note)]


def escaped(text: str) -> str:
    """Words of an engine, which may hold anything, in one line of a page."""
    text = text if len(text) <= WORDS else text[: WORDS - 3] + "..."
    for found, shown in ESCAPED:
        text = text.replace(found, shown)
    return " ".join(text.split())
