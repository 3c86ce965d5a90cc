"""Docstrings as Markdown, for the pages that are made of them."""

import ast
import doctest
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType


def prose(documented: object) -> str:
    """A docstring as one line."""
    return inline(" ".join((inspect.getdoc(documented) or "").split()))


def markdown(documented: object) -> Iterator[str]:
    """The paragraphs of a docstring: what follows ``::`` or ``>>>``, deeper lines and tables as code."""
    for block in re.split(r"\n\n(?=\S)", inspect.cleandoc(documented.__doc__ or "")):
        if block.startswith(">>>"):
            yield f"```python\n{imports(documented, block)}{block}\n```"
        elif block.startswith("=="):
            yield f"```text\n{block}\n```"
        elif block.startswith("::"):
            code = textwrap.dedent(block.removeprefix("::").strip("\n"))
            yield f"```text\n{code}\n```"
        else:
            told, _, code = block.partition("\n\n")
            yield inline(told)
            if code:
                yield f"```text\n{textwrap.dedent(code)}\n```"


def imports(documented: object, code: str) -> str:
    """The imports of a doctest: in a docstring it has the names of its module, on a page none."""
    module = documented if isinstance(documented, ModuleType) else sys.modules[str(documented.__module__)]
    tree = ast.parse("".join(example.source for example in doctest.DocTestParser().get_examples(code)))
    own = {alias.asname or alias.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for alias in n.names}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - own
    modules, things = [], []
    for name in sorted(used & vars(module).keys()):
        thing = vars(module)[name]
        if isinstance(thing, ModuleType):
            modules.append(f">>> import {thing.__name__} as {name}")
        else:
            things.append(f">>> from {getattr(thing, '__module__', module.__name__)} import {name}")
    return "".join(f"{line}\n" for line in (*modules, *sorted(things)))


def inline(text: str) -> str:
    """The marks of a docstring as those of Markdown. An asterisk is a multiplication, or a power without spaces."""
    pieces = re.split(r"(``.*?``)", text)
    return "".join(p[1:-1] if p.startswith("``") else re.sub(r"((?<! )\*|\*(?! )|[|<])", r"\\\1", p) for p in pieces)


def joined(*blocks: str) -> str:
    """A page."""
    return "\n\n".join(blocks) + "\n"
