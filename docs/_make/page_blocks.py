"""Runs what the pages show: every fenced block that is Python or a command, in the order of the page.

    python docs/_make/page_blocks.py docs/traces.md README.md      says what differs; the tests run all pages

What a block is depends on its language:

python
    With ``>>>`` a doctest; without, code that runs and prints nothing.
console
    Commands after ``$``, each in a shell of its own (a backslash goes on in the next line), each followed by all that
    it prints, to stdout and stderr. It must end with exit code 0; ``; echo exit code $?`` shows another one.
sh
    A script whose output is not shown; it must end with exit code 0.
anything else
    Is only shown. A block without a language, or indented by four spaces, is an error: nobody could tell what it is.

``...`` stands for any text in what is printed, over lines too. All blocks of a page share their variables and an empty
folder, in which there is only a copy of docs/examples at its usual place. The environment's programs come first on the
path. What a page says to the runner stands in comments, each in a line of its own:

``<!-- not run: REASON -->``
    before a block that would run: it does not, and why.
``<!-- file: NAME -->``
    before a block: it is written into the folder instead.
``<!-- setup: COMMAND -->``
    runs in the folder without being shown: for what a page takes for granted, such as a checkpoint.
``<!-- needs: PROGRAM -->``
    anywhere: the page is skipped, visibly, where there is no such program.
"""

import contextlib
import difflib
import doctest
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
RUNS = {"python", "console", "sh"}
SHOWN = {"text", "js", "json", "yaml", "toml", "c", "ini", "xml", "html", "markdown"}
COMMAND = re.compile(r"^(\$|tritgold|python3?|pytest|make|pip|cc|\./\w+) .*", re.MULTILINE)
SECONDS = 300  # for one command
STARTED = Path.cwd()
MARK = re.compile(r"^\s*<!-- (not run|file|setup|needs): (.+?) -->\s*$")
FENCE = re.compile(r"^( *)(```+)(.*)$")
ITEM = re.compile(r"^\s*([-*+]|\d+[.)])\s")


class PageError(Exception):
    """What is wrong with a page, by its line."""


@dataclass(frozen=True)
class Block:
    """A step of a page.

    line: of its first line, from 1. kind: python, console, sh, file, setup, needs, not run or shown. text: without the
    fences. says: what its comment says.
    """

    line: int
    kind: str
    text: str = ""
    says: str = ""


def pages() -> list[Path]:
    """Every page whose blocks are run."""
    components = [ROOT / name / "README.md" for name in ("reference", "accelerated", "conformance")]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *components, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    """The steps of a page in their order. PageError for a block of which it is not said what it is."""
    found: list[Block] = []
    lines = text.split("\n")
    mark: tuple[str, str] | None = None  # of the block that must follow
    in_list, at = False, 0
    while at < len(lines):
        line, number = lines[at], at + 1
        at += 1
        if comment := MARK.match(line):
            if mark:
                raise PageError(f"line {number}: the comment before it has no block")
            if comment[1] in ("setup", "needs"):
                found.append(Block(number, comment[1], says=comment[2]))
            else:
                mark = (comment[1], comment[2])
        elif fence := FENCE.match(line):
            end = next((i for i in range(at, len(lines)) if lines[i].strip() == fence[2]), None)
            if end is None:
                raise PageError(f"line {number}: the block has no end")
            content = textwrap.dedent("\n".join(lines[at:end]) + "\n")
            found.append(_block(number + 1, fence[3].strip(), content, mark))
            mark, at = None, end + 1
        elif line.strip():
            if mark:
                raise PageError(f"line {number}: a block must follow '<!-- {mark[0]}: {mark[1]} -->'")
            after_blank = number == 1 or not lines[number - 2].strip()
            in_list = bool(ITEM.match(line)) or (in_list and (line.startswith(" ") or not after_blank))
            if line.startswith("    ") and after_blank and not in_list:
                raise PageError(f"line {number}: indented code; write a block with a language")
    if mark:
        raise PageError(f"line {len(lines)}: a block must follow '<!-- {mark[0]}: {mark[1]} -->'")
    return found


def _block(line: int, language: str, text: str, mark: tuple[str, str] | None) -> Block:
    kind, says = mark or ("", "")
    if kind == "file":
        return Block(line, "file", text, says)
    if language in RUNS:
        if language == "console" and not text.startswith("$ "):
            raise PageError(f"line {line}: a console block begins with '$ '")
        return Block(line, kind or language, text, says)
    if language not in SHOWN and not re.fullmatch(r"\{(?!code)[\w-]+\}.*", language):  # {toctree} and its kin are prose
        raise PageError(f"line {line}: a block is of {', '.join(sorted(RUNS | SHOWN))}, not {language or 'unnamed'}")
    if kind:
        raise PageError(f"line {line}: {language} is only shown, and needs no '{kind}'")
    if command := COMMAND.search(text):
        raise PageError(f"line {line}: '{command[0]}' is a command; write a console block, or sh")
    return Block(line, "shown", text)


def missing(steps: list[Block]) -> list[str]:
    """The programs that the page needs and that are not here."""
    return [b.says for b in steps if b.kind == "needs" and not shutil.which(b.says)]


def run(steps: list[Block], folder: Path) -> int:
    """Run the steps in an empty ``folder``; returns how many blocks ran. PageError for the first that fails."""
    shutil.copytree(
        ROOT / "docs" / "examples", folder / "docs" / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )
    variables: dict[str, object] = {"__name__": "page"}
    ran = 0
    with _inside(folder), np.printoptions():
        for block in steps:
            if block.kind == "file":
                Path(block.says).parent.mkdir(parents=True, exist_ok=True)
                Path(block.says).write_text(block.text, encoding="utf-8")
            elif block.kind == "setup":
                _script(block.says, block.line)
            elif block.kind == "sh":
                _script(block.text, block.line)
            elif block.kind == "console":
                for line, command, shown in commands(block):
                    _command(line, command, shown)
            elif block.kind == "python":
                (_doctest if ">>> " in block.text else _code)(block, variables)
            ran += block.kind in RUNS
    return ran


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """As a reader's Python is there: its modules can be imported, and are forgotten again."""
    before = Path.cwd()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(f"{folder}{os.sep}"):
                del sys.modules[name]


def _code(block: Block, variables: dict[str, object]) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile("\n" * (block.line - 1) + block.text, "the page", "exec"), variables)
        except Exception as error:
            raise PageError(f"line {block.line}: {traceback.format_exc()}") from error
    if printed.getvalue():
        raise PageError(f"line {block.line}: prints what the page does not show:\n{printed.getvalue()}")


def _doctest(block: Block, variables: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, {}, "the page", "the page", block.line - 1)
    test.globs = variables
    said = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    if runner.run(test, out=said.write, clear_globs=False).failed:
        raise PageError(said.getvalue())


def commands(block: Block) -> Iterator[tuple[int, str, str]]:
    """Line, command, and what is shown to be printed."""
    lines = block.text.split("\n")[:-1]
    at = 0
    while at < len(lines):
        line, command = block.line + at, lines[at].removeprefix("$ ")
        at += 1
        while command.endswith("\\") and at < len(lines):
            command += "\n" + lines[at].removeprefix("> ")
            at += 1
        first = at
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        yield line, command, "\n".join(lines[first:at])


def _command(line: int, command: str, shown: str) -> None:
    code, printed = _shell(command)
    got, want = (("\n".join(part.rstrip() for part in text.rstrip().split("\n")) + "\n") for text in (printed, shown))
    if code:
        raise PageError(f"line {line}: exit code {code} of: {command}\n{printed}")
    if not doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS):
        difference = difflib.unified_diff(want.split("\n"), got.split("\n"), "shown", "printed", lineterm="")
        raise PageError(f"line {line}: {command}\n" + "\n".join(difference))


def _script(text: str, line: int) -> None:
    code, printed = _shell(f"set -e\n{text}")
    if code:
        raise PageError(f"line {line}: exit code {code} of: {text}\n{printed}")


def _shell(command: str) -> tuple[int, str]:
    """Exit code, and what is printed on a pipe, by this interpreter's programs."""
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "FORCE_COLOR")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    environment["PYTHONUTF8"] = "1"
    environment["REPOSITORY"] = str(ROOT)  # for setup
    if path := environment.get(
        "PYTHONPATH"
    ):  # its folders may be relative to the folder in which the tests were started
        environment["PYTHONPATH"] = os.pathsep.join(str(STARTED / part) for part in path.split(os.pathsep))
    with subprocess.Popen(
        ["bash", "-c", command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            printed = process.communicate(timeout=SECONDS)[0]
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise PageError(f"not done within {SECONDS} s: {command}") from error
    return process.returncode, printed.decode("utf-8", "replace")


def main(names: list[str]) -> int:
    """Run the pages named, all where none is; 1 where one of them fails."""
    failed = 0
    for page in [Path(name).resolve() for name in names] or pages():
        try:
            steps = blocks(page.read_text(encoding="utf-8"))
            if absent := missing(steps):
                print(f"{page.name}: skipped, needs {', '.join(absent)}")
                continue
            with tempfile.TemporaryDirectory() as folder:
                print(f"{page.name}: {run(steps, Path(folder))} blocks ran")
        except PageError as error:
            failed = 1
            print(f"{page.name}: {error}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
