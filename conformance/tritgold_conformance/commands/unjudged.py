"""Reports of what could not be judged: whoever reads nothing but the report must not find an old one, or none."""

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from tritgold_conformance.commands import model_input


def write_not_judged(spec: str, given: dict[str, Any], error: dict[str, Any]) -> None:
    """Write the report files of a command, in the place of whatever is there.

    given: its options. error: fields of ``tritgold.error/1``. A file that cannot be written is left out: the exit code
    says so, and there is an error to be shown already.
    """
    from tritgold.errors import TritgoldError
    from tritgold_conformance.rendering import writers
    from tritgold_conformance.rendering.escaping import clean, command_text
    from tritgold_conformance.results.report import Problem, not_judged

    files: tuple[Path, ...] = given.get("report_files", ())
    if not files:
        return
    what = ": ".join(str(error[key]) for key in ("file", "thing", "message") if error.get(key))
    problem = Problem(kind=str(error["kind"]), message=clean(what))  # no half of a character, which is no JSON
    model, repeat = clean(model_input.model_name(given["model"])), command_text(_words(spec, given))
    report = not_judged(problem, clean(spec), model, given["mode"], given["ids"] or [], repeat)
    for file in files:
        with suppress(TritgoldError, OSError, UnicodeEncodeError):
            writers.remove_old([file])
            writers.write_reports(report, [file])


def _words(spec: str, given: dict[str, Any]) -> str:
    """The command again."""
    words = ["tritgold", "check", "--engine", spec]
    for option in ("model", "timeout", "mode", "xfail"):
        words += ["--" + option, str(given[option])] if given[option] is not None else []
    words += given["reading"].words()
    ids = given["ids"]
    if ids is None:
        return shlex.join([*words, "--tokens", str(given["count"]), "--seed", str(given["seed"])])
    return shlex.join([*words, "--ids", ",".join(map(str, ids))])
