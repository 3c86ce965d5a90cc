"""Renders a chat template in jinja2's sandbox: a separate program that ``template`` starts and limits.

Each line of stdin: a JSON object with template, variables. For each a line of stdout: one with text or error. Templates
come with models and are not trusted: they can use the messages and strings and call the few methods of SAFE, nothing
else of Python. The environment is that of transformers 5.24 (``utils/chat_template_utils.py``): whitespace, tojson,
raise_exception, strftime_now, namespace, loop controls and the ``generation`` tag.
"""

import json
import sys
from contextlib import suppress
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MOST_CHARACTERS, MOST_BYTES = 1 << 20, 1 << 30  # length of a rendered chat; memory, if the system can limit it
_OF_TEXT = """
    capitalize count endswith find index isalpha isdigit islower isspace isupper join lower lstrip partition
    removeprefix removesuffix replace rfind rpartition rsplit rstrip split splitlines startswith strip title upper
"""
SAFE: dict[type, frozenset[str]] = {
    str: frozenset(_OF_TEXT.split()),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
}


class _Environment(ImmutableSandboxedEnvironment):
    """Allowed attributes: those of SAFE, of loops, and those that a template has set in its namespaces."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, LoopContext | Namespace):
            return not attr.startswith("_")
        return attr in SAFE.get(type(obj), ()) and super().is_safe_attribute(obj, attr, value)


class _Generation(Extension):
    """``{% generation %}`` marks the assistant's text for training; here it has no effect."""

    tags = {"generation"}  # noqa: RUF012  the base class's

    def parse(self, parser: Parser) -> jinja2.nodes.Node:
        """The body, in its own scope as in transformers."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def render(template: str, variables: dict[str, Any]) -> str:
    """The text. Raises jinja2.TemplateError, ValueError for more than MOST_CHARACTERS, and errors of the template."""
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals = {
        "raise_exception": _raise,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "namespace": Namespace,
        "range": environment.globals["range"],
        "dict": lambda **pairs: dict(**pairs),
    }
    pieces: list[str] = []
    length = 0
    for piece in environment.from_string(template).generate(variables):
        length += len(piece)
        if length > MOST_CHARACTERS:
            raise ValueError(f"more than {MOST_CHARACTERS:,} characters")
        pieces.append(piece)
    return "".join(pieces)


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, **more: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, **more)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def main() -> None:
    """Answer requests until there are no more."""
    if resource is not None:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        try:
            answer = {"text": render(asked["template"], asked["variables"])}
        except Exception as error:  # a template can raise any error, and its message is the answer
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
