"""Docstrings as Markdown, for the pages that are made of them."""

import inspect
import re
import textwrap
from collections.abc import Iterator


def prose(documented: object) -> str:
    """A docstring as one line."""
    return inline(" ".join((inspect.getdoc(documented) or "").split()))


def markdown(documented: object) -> Iterator[str]:
    """The paragraphs of a docstring: what follows ``::`` or ``>>>``, and tables, as code."""
    for block in re.split(r"\n\n(?=\S)", inspect.cleandoc(documented.__doc__ or "")):
        if block.startswith(">>>"):
            yield f"```python\n{block}\n```"
        elif block.startswith("=="):
            yield f"```text\n{block}\n```"
        elif block.startswith("::"):
            code = textwrap.dedent(block.removeprefix("::").strip("\n"))
            yield f"```text\n{code}\n```"
        else:
            yield inline(block)


def inline(text: str) -> str:
    """The marks of a docstring as those of Markdown. An asterisk is a multiplication, or a power without spaces."""
    pieces = re.split(r"(``.*?``)", text)
    return "".join(p[1:-1] if p.startswith("``") else re.sub(r"((?<! )\*|\*(?! )|[|<])", r"\\\1", p) for p in pieces)


def joined(*blocks: str) -> str:
    """A page."""
    return "\n\n".join(blocks) + "\n"
