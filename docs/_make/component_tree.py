"""The tree of conformance/README.md, from the first sentence of each folder and file.

``python docs/_make/component_tree.py`` writes it; a test holds the page against it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE, PAGE = ROOT / "conformance" / "tritgold_conformance", ROOT / "conformance" / "README.md"
NAME, WIDTH = 26, 120  # columns of a name, of a line


def tree() -> str:
    """The lines of the tree, folders after the files beside them."""
    return "\n".join(["conformance/tritgold_conformance/", *_below(PACKAGE, "  ")])


def _below(folder: Path, indent: str) -> Iterator[str]:
    for path in sorted(folder.iterdir(), key=lambda p: (p.is_dir(), p.name)):
        if path.suffix == ".py" and path.name != "__init__.py":
            yield _line(indent + path.name, path)
        elif (path / "__init__.py").exists():
            yield _line(f"{indent}{path.name}/", path / "__init__.py")
            yield from _below(path, indent + "  ")


def _line(name: str, file: Path) -> str:
    said = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    sentence = re.split(r"(?<=[.:;])\s", " ".join(said.split("\n\n")[0].split()) + " ")
    first = sentence[0] if not sentence[0].endswith(":") or len(sentence) < 2 else " ".join(sentence[:2])
    line = f"{name:{NAME}} {first.strip().rstrip('.;:')}".replace("``", "").rstrip()
    return line if len(line) <= WIDTH else line[: line.rindex(" ", 0, WIDTH - 3)] + " ..."


def with_tree(page: str) -> str:
    """The page with the tree as it is now."""
    before, _, after = page.partition("```text\n")
    return f"{before}```text\n{tree()}\n```{after.partition('```')[2]}"


if __name__ == "__main__":
    PAGE.write_text(with_tree(PAGE.read_text("utf-8")), "utf-8")
