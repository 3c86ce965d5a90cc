"""What README.md says of the repository is so: its tree, its matrix of formats, its commands."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import click

from tritgold.convert.targets import TARGETS
from tritgold.formats.layouts import GGUF_TERNARY, Layouts
from tritgold.formats.packings import PACKINGS
from tritgold_conformance.cli import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = ("reference/tritgold", "accelerated/tritgold_xla", "conformance/tritgold_conformance")
TILE = {"BM": 64, "BK": 96, "bm": 32}


def tree(page: str) -> dict[str, str]:
    """Path -> comment, of the lines of the tree; what is indented is in the folder above."""
    found, folder = {}, ""
    for line in page.split("## The tree\n\n```text\n")[1].split("```")[0].splitlines():
        indent, name, comment = re.fullmatch(r"( *)(\S+) {2,}(\S.*)", line).groups()
        folder = folder if indent else name
        found[folder + name if indent else name] = comment
    return found


def there(root: Path) -> Iterator[str]:
    """Top-level files and folders that git does not ignore, and the packages; the code's folders by their package."""
    ignored = [line.strip("/") for line in (root / ".gitignore").read_text(encoding="utf-8").split()]
    for path in root.iterdir():
        of_code = [code for code in CODE if code.startswith(f"{path.name}/")]
        if path.name in (".git", ".gitignore") or any(fnmatch(path.name, each) for each in ignored):
            continue
        yield from [f"{code}/" for code in of_code] or [path.name + "/" * path.is_dir()]
    for code in CODE:
        for package in (root / code).glob("*/__init__.py"):
            yield f"{code}/{package.parent.name}/"


def test_the_tree_names_everything_at_the_top_and_every_package_and_nothing_else() -> None:
    assert sorted(tree(PAGE)) == sorted(there(ROOT))


def test_a_package_more_or_less_is_seen(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("build/\n*.egg-info/\n", encoding="utf-8")
    for folder in ("build", "x.egg-info", "tests", "reference/tritgold/formats", "reference/tritgold/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "reference/tritgold/formats/__init__.py").touch()
    (tmp_path / "Makefile").touch()
    found = ["Makefile", "reference/tritgold/", "reference/tritgold/formats/", "tests/"]
    assert sorted(set(there(tmp_path)) - {".gitignore"}) == found


def formats(page: str) -> dict[str, tuple[str, str, str]]:
    """Packing -> read, write, multiply."""
    found = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"\[`(\w+)`\]\(docs/formats/", cells[0])
        found |= dict.fromkeys(names, tuple(cells[1:4]))
    return found


def test_the_matrix_of_formats_is_what_the_code_reads_and_writes() -> None:
    given = Layouts(tile=TILE)
    in_gguf = {given.packing(dtype, (64, 96)).name for dtype in GGUF_TERNARY} | {"i2_s_4rows"}  # type 36, if so told
    read = {"hf", "sglbitnt", *in_gguf}
    written = {name.removeprefix("gguf-") for name in TARGETS} | {"i2_s_4rows"}  # --to-i2s 4rows
    shown = formats(PAGE)
    assert shown.keys() == PACKINGS.keys()
    for name, cells in shown.items():
        expected = ("yes" if name in read else "packing", "yes" if name in written else "packing")
        assert cells == (*expected, "yes" if name in read else "no"), name


def test_every_command_and_option_of_the_front_page_exists() -> None:
    """Also those that are not run: ``tritgold VERB ... --option``."""
    used = re.findall(r"tritgold ([a-z]+)([^`|\n]*)`", PAGE)
    assert len(used) > 12
    for verb, rest in used:
        command = main.get_command(click.Context(main), verb)
        options = {name for each in command.params if isinstance(each, click.Option) for name in each.opts}
        assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest)) <= options, f"tritgold {verb}{rest}"
