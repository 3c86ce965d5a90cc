"""docs/commands.md: the command and its options, read from the click commands themselves."""

import inspect
import re
from collections.abc import Iterator

import click
from docstrings import inline, joined
from markdown_tables import MADE, table

from tritgold_conformance.cli import main

OPENING = """\
`tritgold COMMAND --help` prints the same. What to use when: the [front page](../README.md). An option that may be
repeated is marked *repeatable*; where no default is shown, nothing is done unless it is given."""


def command_page() -> str:
    """The page."""
    ctx = click.Context(main, info_name="tritgold")
    every = list(commands(main, ctx))
    rows = [(f"[{' '.join(path)}](#{'-'.join(path)})", first_line(command)) for path, command, _ in every]
    parts = [section(path, command, context) for path, command, context in every]
    return joined("# Commands", MADE, *texts(main), OPENING, table(("command", "what it does"), rows), *parts)


def commands(
    group: click.Group, ctx: click.Context, path: tuple[str, ...] = ("tritgold",)
) -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    """Every command below a group, those of its groups after them: its words, itself, its context."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is None or command.hidden:
            continue
        context = click.Context(command, info_name=name, parent=ctx)
        yield (*path, name), command, context
        if isinstance(command, click.Group):
            yield from commands(command, context, (*path, name))


def section(path: tuple[str, ...], command: click.Command, ctx: click.Context) -> str:
    """One command: how it is called, what it says of itself, its options."""
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    rows = [(f"`{', '.join((*o.opts, *o.secondary_opts))}`", value(o), explained(o)) for o in options]
    return joined(
        f"## {' '.join(path)}",
        f"Usage: `{usage(path, command)}`",
        *texts(command),
        table(("option", "value", "what it does"), rows),
    ).rstrip()


def usage(path: tuple[str, ...], command: click.Command) -> str:
    """How it is called."""
    arguments = [(p.metavar or p.name or "").upper() for p in command.params if isinstance(p, click.Argument)]
    required = {(p.metavar or p.name or "").upper() for p in command.params if p.required or p.nargs == 2}
    words = [a if a in required else f"[{a.strip('[]')}]" for a in arguments]
    rest = ["[COMMAND]"] if isinstance(command, click.Group) else []
    return " ".join((*path, "[OPTIONS]", *words, *rest))


def texts(command: click.Command) -> Iterator[str]:
    """The paragraphs of its help."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        yield marked(" ".join(paragraph.replace("\b", "").split()))


def first_line(command: click.Command) -> str:
    """The first sentence of its help."""
    return next(texts(command)).split(". ")[0].rstrip(".")


def value(option: click.Option) -> str:
    """What the option takes: nothing, the choices there are, a range, or a kind of thing."""
    if option.is_flag:
        return ""
    kind = option.type
    if isinstance(kind, click.Choice):
        return ", ".join(f"`{choice}`" for choice in kind.choices)
    if option.metavar:
        return f"`{option.metavar}`"
    if isinstance(kind, click.IntRange | click.FloatRange):
        low = "" if kind.min is None else f"{'above' if kind.min_open else 'from'} {kind.min:,}"
        high = "" if kind.max is None else f"{'below' if kind.max_open else 'to'} {kind.max:,}"
        return " ".join(filter(None, ("integer" if isinstance(kind, click.IntRange) else "number", low, high)))
    return {"text": "text", "integer": "integer", "float": "number"}.get(kind.name, f"`{kind.name.upper()}`")


def explained(option: click.Option) -> str:
    """Its help, whether it may be repeated, and its default."""
    more = ["*Repeatable.*"] if option.multiple and "repeated" not in (option.help or "") else []
    if option.show_default:
        more.append(f"*Default:* `{option.default}`.")
    return " ".join((marked(option.help or ""), *more))


def marked(text: str) -> str:
    """A sentence of a help; options in it as code.

    >>> marked("Instead of --tokens and `--seed`.")
    'Instead of `--tokens` and `--seed`.'
    """
    pieces = re.split(r"(`.*?`)", text)
    return "".join(p if p.startswith("`") else inline(re.sub(r"(--[a-z][a-z0-9-]*)", r"``\1``", p)) for p in pieces)
