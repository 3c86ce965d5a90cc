"""The pages that are looked up, made of the code: faults, modes, decode presets, KV schemes, sparsity rules, commands,
the cases of the scoreboard.

``python docs/_make/lookup_pages.py`` (``make lookup``) writes them; a test makes them again and compares. They are kept
in the repository, not made while the site is built: so pages written by hand can link to them on a code host too, and a
change of the code shows in a review as a change of the page. docs/_make/format_pages.py does the same for the formats.
"""

from pathlib import Path

from architecture_page import architecture_page
from command_page import command_page
from decode_pages import mode_pages, preset_pages
from fault_pages import fault_pages
from markdown_tables import FOLDER
from report_page import report_page
from scheme_pages import rule_pages, scheme_pages
from scoreboard.cells import PAGE, cells_page
from scoreboard.tables import reports

FOLDERS = ("faults", "modes", "decode-presets", "kv-schemes", "sparsity-rules")  # that hold nothing else


def main() -> None:
    """Write every page, and remove those of things that are gone."""
    made = pages()
    for gone in there() - made.keys():
        (FOLDER / gone).unlink()
    for name, text in made.items():
        path = FOLDER / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Every page by its path in docs."""
    return {
        **fault_pages(),
        **mode_pages(),
        **preset_pages(),
        **scheme_pages(),
        **rule_pages(),
        "architectures.md": architecture_page(),
        "commands.md": command_page(),
        "report-schema.md": report_page(),
        PAGE: cells_page(reports()),
    }


def there() -> set[str]:
    """Paths in docs of the pages that are in those folders."""
    return {path.relative_to(FOLDER).as_posix() for name in FOLDERS for path in Path(FOLDER / name).glob("*.md")}


if __name__ == "__main__":
    main()
