"""Which source files the Markdown pages link to."""

import re
from collections.abc import Iterator
from pathlib import Path

# Suffixes of the files that the site shows as pages, and the language that they are coloured as. Of others, data for
# example, Sphinx keeps a copy to download.
LANGUAGES = {".py": "python", ".c": "c", ".toml": "toml", ".txt": "text"}
LINK = r"\]\(([^)#:\s]+)\)"
OF_A_FOLDER = ("README.md", "__init__.py")  # the file that says what is in one


def linked_sources(root: Path) -> list[str]:
    """Paths of the linked files, relative to the repository, sorted.

    Only what lies inside the repository: nothing else is shown, wherever a link leads.
    """
    found = set()
    for page in pages(root):
        for target in re.findall(LINK, without_folders(page.read_text(encoding="utf-8"), page.parent)):
            path = (page.parent / target).resolve()
            if path.suffix in LANGUAGES and path.is_file() and path.is_relative_to(root.resolve()):
                found.add(path.relative_to(root.resolve()).as_posix())
    return sorted(found)


def without_folders(text: str, where: Path) -> str:
    """A page's text; a link to a folder, which a code host lists, becomes one to the file that describes it."""

    def named(link: re.Match[str]) -> str:
        folder = where / link[1]
        file = next((name for name in OF_A_FOLDER if folder.is_dir() and (folder / name).is_file()), None)
        return f"]({link[1].rstrip('/')}/{file})" if file else link[0]

    return re.sub(LINK, named, text)


def pages(root: Path) -> Iterator[Path]:
    """The Markdown files of the site."""
    yield from root.glob("*.md")
    yield from root.glob("*/README.md")
    yield from (root / "docs").rglob("*.md")
    yield from root.glob("reference/tritgold/golden/*/README.md")
