"""Every block of the pages that is Python or a command runs, and prints what it shows; and the runner can fail."""

import re
import sys
import time
from pathlib import Path

import page_blocks
import pytest
from page_blocks import ROOT, Block, PageError, blocks, commands, missing, pages, run


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_the_page_runs_and_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    steps = blocks(text)
    if absent := missing(steps):
        pytest.skip(f"{page.name} needs {', '.join(absent)}")
    ran = run(steps, tmp_path)
    # Counted another way, so that no block is passed over: fences that open, less those that are excused by name.
    opened = len(re.findall(r"^ *```+(?:python|console|sh)$", text, re.MULTILINE))
    excused = len(re.findall(r"^ *<!-- not run: .*\n *```+(?:python|console|sh)$", text, re.MULTILINE))
    written = len(re.findall(r"^ *<!-- file: .*\n *```+(?:python|console|sh)$", text, re.MULTILINE))
    assert ran == opened - excused - written


def test_modules_of_a_page_are_its_own(tmp_path: Path) -> None:
    for number in ("1", "2"):
        folder = tmp_path / number
        folder.mkdir()
        text = page(
            "<!-- file: module_of_a_page.py -->",
            *("```python", f"NUMBER = {number}", "```"),
            *("```python", ">>> from module_of_a_page import NUMBER", ">>> NUMBER", number, "```"),
        )
        assert ran(text, folder) == 1
    assert str(folder) not in sys.path


def page(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def ran(text: str, folder: Path) -> int:
    return run(blocks(text), folder)


def test_blocks_share_variables_and_a_folder(tmp_path: Path) -> None:
    text = page(
        "Take 2.",
        "```python",
        "x = 2",
        "```",
        "<!-- file: sub/name.txt -->",
        "```text",
        "three",
        "```",
        "<!-- setup: echo four > other.txt -->",
        "- in a list",
        "",
        "  ```python",
        "  >>> x + 1",
        "  3",
        "  >>> from pathlib import Path",
        "  >>> Path('sub/name.txt').read_text()",
        "  'thr...'",
        "  ```",
        "```console",
        "$ cat sub/name.txt \\",
        "> other.txt",
        "three",
        "f...r",
        "$ false; echo exit code $?",
        "exit code 1",
        "```",
        "```sh",
        "test -f docs/examples/engine.c",
        "```",
    )
    assert ran(text, tmp_path) == 4
    assert Path.cwd() != tmp_path


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["```python", ">>> 1 + 1", "3", "```"], "line 2.*Expected:\n    3\nGot:\n    2"),
        (["", "```python", ">>> 1 +", "2", "```"], "line 3.*SyntaxError"),
        (["```python", "print(1)", "```"], "line 2: prints what the page does not show:\n1"),
        (["```python", "x = 1", "y = x / 0", "```"], "line 3, in <module>.*ZeroDivisionError"),
        (["```console", "$ echo one; echo two", "one", "```"], r"line 2: echo one; echo two\n.*\+two"),
        (["```console", "$ true", "$ true", "more", "```"], r"line 3: true\n.*-more"),
        (["```console", "$ echo one; exit 3", "one", "```"], "exit code 3 of: echo one; exit 3\none"),
        (["```sh", "false", "true", "```"], "exit code 1"),
        (["<!-- setup: exit 4 -->"], "exit code 4"),
    ],
)
def test_a_block_that_prints_or_ends_otherwise_fails(lines: list[str], says: str, tmp_path: Path) -> None:
    with pytest.raises(PageError) as error:
        ran(page(*lines), tmp_path)
    assert re.search(says, str(error.value), re.DOTALL), error.value


def test_a_command_that_does_not_end_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_blocks, "SECONDS", 0.2)
    began = time.monotonic()
    with pytest.raises(PageError, match="not done within"):
        ran(page("```console", "$ exec sleep 60", "```"), tmp_path)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["Text.", "", "    tritgold check"], "line 3: indented code"),
        (["- item", "", "  more", "", "Text.", "", "    tritgold check"], "line 7: indented code"),
        (["```", "tritgold check", "```"], "a block is of .*, not unnamed"),
        (["```bash", "tritgold check", "```"], "a block is of .*, not bash"),
        (["```{code-block} python", "1 / 0", "```"], "a block is of "),
        (["```console", "tritgold check", "```"], "a console block begins with"),
        (["```text", "$ tritgold check", "```"], "line 2: '. tritgold check' is a command"),
        (["```text", "tritgold check", "```"], "line 2: 'tritgold check' is a command"),
        (["<!-- not run: hours -->", "```text", "tritgold check", "```"], "text is only shown"),
        (["<!-- not run: hours -->", "", "Text.", "```sh", "true", "```"], "line 3: a block must follow"),
        (["<!-- not run: hours -->"], "a block must follow"),
        (["<!-- file: a -->", "<!-- not run: hours -->", "```sh", "true", "```"], "line 2: the comment before it"),
        (["```sh", "true"], "the block has no end"),
    ],
)
def test_a_block_of_which_nobody_could_tell_whether_it_runs_is_an_error(lines: list[str], says: str) -> None:
    with pytest.raises(PageError, match=says):
        blocks(page(*lines))


def test_what_is_not_run_says_why_and_what_is_shown_is_not_run(tmp_path: Path) -> None:
    text = page(
        "<!-- not run: hours -->",
        "```console",
        "$ false",
        "```",
        "1. item",
        "",
        "    its second paragraph",
        "",
        "```{toctree}",
        "page",
        "```",
        "```json",
        "{}",
        "```",
    )
    assert [(b.kind, b.says) for b in blocks(text)] == [("not run", "hours"), ("shown", ""), ("shown", "")]
    assert ran(text, tmp_path) == 0


def test_a_page_says_what_it_needs() -> None:
    assert missing(blocks("<!-- needs: bash -->\n<!-- needs: no-such-program -->\n")) == ["no-such-program"]


def test_a_command_that_goes_on_in_the_next_line() -> None:
    block = Block(5, "console", "$ one \\\n> two\nshown\n$ three\n")
    assert list(commands(block)) == [(5, "one \\\ntwo", "shown"), (8, "three", "")]
