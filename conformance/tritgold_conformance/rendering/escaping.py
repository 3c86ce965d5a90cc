"""Makes untrusted text safe for reports: terminals, browsers and XML parsers find no control sequence or markup."""

import math
import re
from collections.abc import Sequence

from markupsafe import Markup, escape
from rich.markup import escape as without_markup
from rich.table import Table
from rich.text import Text

from tritgold.formats.untrusted_text import printable

_NAME, _TEXT, COMMAND = 200, 4000, 100_000


def clean(text: object, most: int = _TEXT) -> str:
    r"""Only printable characters and line ends; all others, including lone surrogates, as escapes.

    >>> clean("a\x00b\nc\u202e")
    'a\\x00b\nc\\u202e'
    """
    lines = str(text)[: most + 1].split("\n")
    joined = "\n".join(printable(line, most) for line in lines)
    return joined if len(str(text)) <= most else joined[:most] + "..."


def name(text: object) -> str:
    """One line, for a name or a version; at most 200 characters."""
    return printable(text, _NAME)


def line(text: object, most: int = _TEXT) -> str:
    """One line, for a note."""
    return printable(text, most)


def terminal(text: object, most: int = _TEXT) -> str:
    r"""One line for rich's console, without markup and without terminal control characters.

    >>> terminal("a\nb [bold]\x1b[2J")
    'a\\nb \\[bold]\\x1b[2J'
    """
    return without_markup(line(text, most))


def shown(value: object) -> str:
    """Text from a file, complete, with terminal control characters as escapes."""
    text = str(value)
    return printable(text, len(text))


def table(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], title: str | None = None) -> Table:
    """A table for rich's console. A ``>`` after a column's name aligns it right. Long cells are wrapped, never cut."""
    made = Table(show_edge=False, title=title, title_justify="left")
    for column in columns:
        made.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(shown(cell)) for cell in row))
    return made


def command_text(text: str) -> str:
    """A command line to copy, up to 100,000 characters."""
    return clean(text, COMMAND)


def escaped(text: object, most: int = _TEXT) -> Markup:
    """Text for HTML and SVG, also inside quoted attributes."""
    return escape(clean(text, most))


def markdown(text: object) -> str:
    r"""Text for a cell or a line of Markdown, also GitHub's: no markup, no link, no mention.

    >>> markdown("a|b <b>*c*</b> @all #1")
    'a\\|b &lt;b&gt;\\*c\\*&lt;/b&gt; &#64;all &#35;1'
    """
    line = " ".join(clean(text).split("\n"))
    line = re.sub(r"([\\`*_{}\[\]()|~!+])", r"\\\1", line)
    for character, entity in (("<", "&lt;"), (">", "&gt;"), ("@", "&#64;"), (" #", " &#35;"), ("://", "&#58;//")):
        line = line.replace(character, entity)
    return line


def fenced(text: str) -> str:
    """A Markdown code block; its fence is longer than any row of backticks in the text."""
    shown = command_text(text)
    runs = (len(run) for run in re.findall(r"`+", shown))
    fence = "`" * max(3, 1 + max(runs, default=0))
    return f"{fence}sh\n{shown}\n{fence}"


def number(value: float | None, digits: int = 3) -> str:
    """A number as short text; ``-`` for None.

    >>> number(0.00012345), number(None), number(1234567.0), number(0)
    ('0.000123', '-', '1.23e6', '0')
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "not finite"
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.{digits}g}")
