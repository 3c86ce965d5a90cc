"""xfail files: known failures of an engine, kept in the engine's own repository (format: docs/reports.md)."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tritgold.errors import ConfigError
from tritgold.formats.untrusted_text import printable, read_text
from tritgold_conformance.results.cases import cases, matches
from tritgold_conformance.results.levels import LEVELS
from tritgold_conformance.results.report import Expected, Level, Report, Status, Verdict, Xfail

_LARGEST = 1 << 20
_COMMENT = re.compile(r"(?:^|\s)#(.*)")


def read_xfail(path: Path) -> list[Expected]:
    """The entries of a file, before any judgement.

    One entry per line, ``LEVEL`` or ``LEVEL:NAME``; ``#`` begins a comment, which after an entry is its reason. Raises
    ConfigError (``xfail-file``) with the line number for an invalid entry, an unknown level, or a repeated
    entry; OSError if the file cannot be read.
    """
    try:
        lines = read_text(path, _LARGEST).removeprefix("\ufeff").splitlines()
    except ValueError as error:
        raise ConfigError(f"is not text: {error}", kind="xfail-file", file=path) from None
    entries: list[Expected] = []
    for number, line in enumerate(lines, start=1):
        comment = _COMMENT.search(line)
        pattern = (line[: comment.start()] if comment else line).strip()
        if pattern:
            _require(pattern, number, path, entries)
            reason = comment[1].strip() if comment else ""
            entries.append(Expected(pattern=pattern, reason=reason, line=number, failing=0, passing=0, not_assessed=0))
    return entries


def _require(pattern: str, number: int, path: Path, before: list[Expected]) -> None:
    thing, expected = f"line {number}", "LEVEL or LEVEL:NAME, LEVEL one of " + ", ".join(LEVELS)
    level, colon, name = pattern.partition(":")
    if level not in LEVELS or (colon and not name):
        got = printable(repr(pattern))
        raise ConfigError("is not an entry", kind="xfail-file", file=path, thing=thing, got=got, expected=expected)
    twice = next((entry.line for entry in before if entry.pattern == pattern), None)
    if twice is not None:
        what = f"{printable(pattern)} is already on line {twice}"
        raise ConfigError(what, kind="xfail-file", file=path, thing=thing)


def with_xfail(report: Report, entries: Sequence[Expected], file: str, strict: bool = False) -> Report:
    """The report, judged again with the known failures.

    A level with only listed failures becomes ``known failures``; if no other level fails, the verdict becomes ``known
    failures only`` and the exit code 0. The verdict never becomes ``conforms``.
    """
    judged = [(case.id, case.failing, case.status) for case in cases(report)]
    tried = []
    for entry in entries:
        named = [(failing, status) for case, failing, status in judged if matches(entry.pattern, case)]
        tried.append(
            Expected(
                pattern=entry.pattern,
                reason=entry.reason,
                line=entry.line,
                failing=sum(failing for failing, _ in named),
                passing=sum(status == "passed" for _, status in named),
                not_assessed=sum(status == "not assessed" for _, status in named),
            )
        )
    listed = msgspec.structs.replace(report, xfail=Xfail(file=file, strict=strict, entries=tried))
    known = Counter(case.level for case in cases(listed) if case.status == "known failures")
    unknown = {case.level for case in cases(listed) if case.status == "failed"}
    levels = {name: _level(level, known[name], name in unknown) for name, level in report.levels.items()}
    return msgspec.structs.replace(listed, levels=levels, verdict=_verdict(report.verdict, levels))


def _level(level: Level, known: int, fails: bool) -> Level:
    status: Status = "known failures" if known and not fails else level.status
    return msgspec.structs.replace(level, status=status, known=known)


def _verdict(before: Verdict, levels: dict[str, Level]) -> Verdict:
    failing = any(level.status == "failed" for level in levels.values())
    return "known failures only" if before == "does not conform" and not failing else before


def stale_in_all(reports: Sequence[Report]) -> list[Expected]:
    """Entries that are stale over several inputs: they fail on none, and are not merely unassessed on all."""
    tried = [report.xfail.entries for report in reports if report.xfail is not None]
    whole = []
    for same in zip(*tried, strict=True):
        counts = {name: sum(getattr(e, name) for e in same) for name in ("failing", "passing", "not_assessed")}
        whole.append(msgspec.structs.replace(same[0], **counts))
    return [entry for entry in whole if entry.stale]
