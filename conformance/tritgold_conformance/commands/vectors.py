"""tritgold vectors: writes conformance cases as data, checks a folder of them, and judges an engine's answers."""

import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from tritgold.errors import FormatError
from tritgold_conformance.case_vectors import manifest
from tritgold_conformance.case_vectors.case import Manifest, json_schema
from tritgold_conformance.case_vectors.judge import judge as judge_answers
from tritgold_conformance.case_vectors.judgement import Judgement, Verdict
from tritgold_conformance.case_vectors.write import write
from tritgold_conformance.commands import printing
from tritgold_conformance.commands.options import ANY_PATH

SHOWN = 20  # failures on a terminal; --json has all
SUSPECTS = 5  # on a terminal


@click.command()
@click.argument("folder", metavar="DIR", required=False, type=ANY_PATH)
@click.option("--check", is_flag=True, help="Compare DIR with its manifest, and with what this version writes.")
@click.option("--judge", "answers", type=ANY_PATH, metavar="ANSWERS", help="Judge the answers in this folder.")
@click.option("--only", default="", metavar="CASE", help="With --judge: only this case or group.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of the folder's JSON files and stop.")
@printing.json_option
def vectors(folder: Path | None, check: bool, answers: Path | None, only: str, schema: bool, as_json: bool) -> None:
    """Write conformance cases as data, and judge answers to them.

    A case has inputs, expected outputs, tolerances, and names of the faults that it is made for: safetensors and JSON,
    for engines in any language; docs/vectors.md describes the folder. With --judge, the answers of an engine are
    compared with the expected outputs: exit code 0 if all answers pass, 1 if not, 5 if there is no answer. With --check
    the exit code is 3 if DIR differs from its manifest, or from what this version writes.
    """
    if schema:
        printing.print_json(json_schema())
        return
    if folder is None:
        raise click.UsageError("Missing argument 'DIR'.")
    if (answers is not None and check) or (only and answers is None):
        raise click.UsageError("--check and --judge exclude each other, and --only goes with --judge")
    with printing.errors(as_json), printing.progress() as say:
        if answers is not None:
            sys.exit(_judge(folder, answers, only, as_json))
        if check:
            say("hashes, then all cases again")
            found = _check(folder)
            what = "complete, and the same as this version writes"
        else:
            say("cases")
            found = write(folder)
            what = "written"
    size = sum(h.bytes for h in found.files.values())
    counts: dict[str, Any] = {"cases": found.cases, "groups": len(found.groups), "files": len(found.files)}
    if as_json:
        printing.print_json(
            {"schema": "tritgold.vectors-folder/1", **counts, "bytes": size, "faults": len(found.faults)}
        )
    else:
        click.echo(
            f"{folder}: {what}: {found.cases} cases in {len(found.groups)} groups, {size / 1e6:.1f} MB, "
            f"made for {len(found.faults)} known faults"
        )


def _check(folder: Path) -> Manifest:
    found = manifest.check(folder)
    with tempfile.TemporaryDirectory(prefix="tritgold-") as scratch:
        again = write(Path(scratch) / "vectors")
    differing = [name for name, one in found.files.items() if again.files.get(name) != one]
    if differing or again != found:
        raise FormatError(
            "differs from what this installation computes",
            kind="vectors-other-bytes",
            file=folder,
            thing=(differing or ["manifest.json"])[0],
            hint="report it, with `tritgold env`: the golden arithmetic is the same bits everywhere",
        )
    return found


def _judge(folder: Path, answers: Path, only: str, as_json: bool) -> int:
    expected = manifest.check(folder)
    found = judge_answers(folder, answers, expected, only)
    if as_json:
        printing.print_json(_as_dict(found, folder, answers))
    else:
        _show(found, folder, answers, {name: flag.summary for name, flag in expected.faults.items()})
    return found.exit_code


def _as_dict(found: Judgement, folder: Path, answers: Path) -> dict[str, Any]:
    failed = [v for v in found.verdicts if v.status == "failed"]
    return {
        "schema": "tritgold.vectors-judgement/1",
        "exit_code": found.exit_code,
        "passed": found.count("passed"),
        "failed": found.count("failed"),
        "not_assessed": found.count("not assessed"),
        "no_such_groups": found.unknown,
        "without_overflow": found.without_overflow,
        "suspects": found.suspects,
        "rules": found.rules,
        "failures": [
            {"case": v.case, "what": v.what, "flags": v.flags, "reproduce": _reproduce(v, folder, answers)}
            for v in failed
        ],
        "cases": {v.case: v.status for v in found.verdicts},
    }


def _show(found: Judgement, folder: Path, answers: Path, summaries: dict[str, str]) -> None:
    failed = [v for v in found.verdicts if v.status == "failed"]
    for verdict in failed[:SHOWN]:
        printing.echo(f"failed  {verdict.case}: {verdict.what}")
        if verdict.flags:
            printing.echo(f"        made for: {', '.join(verdict.flags)}")
        printing.echo(f"        {_reproduce(verdict, folder, answers)}")
    if len(failed) > SHOWN:
        printing.echo(f"        and {len(failed) - SHOWN} more; --json has all")
    counts = (f"{found.count('passed')} passed", f"{len(failed)} failed", f"{found.count('not assessed')} not assessed")
    printing.echo(", ".join(counts))
    if skipped := {v.case.rpartition("/")[0] for v in found.verdicts if v.status == "not assessed"}:
        printing.echo(f"not assessed, in whole or in part: {', '.join(sorted(skipped))}")
    for group in found.unknown:
        printing.echo(f"{answers / group}: no group has this name; this folder was not read")
    if found.without_overflow:
        printing.echo("not a pass: no case with sums beyond int16 was answered, so an overflow would not be seen")
    for series, rule in found.rules.items():
        printing.echo(f"{series}: {rule}")
    for name, count in list(found.suspects.items())[:SUSPECTS]:
        of = count + found.passed_for(name)
        printing.echo(f"suspect {name} ({count} of {of} cases made for it failed): {summaries.get(name, '')}")


def _reproduce(verdict: Verdict, folder: Path, answers: Path) -> str:
    return shlex.join(["tritgold", "vectors", str(folder), "--judge", str(answers), "--only", verdict.case])
