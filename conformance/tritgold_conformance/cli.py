"""The ``tritgold`` command. Exit codes: 0 conforms, 1 does not, 2 usage, 3 could not judge, 5 nothing was checked.

130 after Ctrl-C.
"""

import importlib
from typing import Any

import click

from tritgold_conformance.commands.leaving import leaving

# Each is the command of that name in the module of that name in commands/, imported when it is wanted. A test holds
# the lines to the docstrings.
COMMANDS = {
    "run": "Generate text, greedily unless --temperature is given.",
    "serve": "Serve a model over HTTP: OpenAI's completions and chat, and llama.cpp's endpoints.",
    "trace": "Save every activation of one forward pass.",
    "compare": "Name the first divergence between two traces.",
    "check": "Judge an engine against the golden model.",
    "ask": "Ask an engine everything that check asks, once, and write the answers to a new folder.",
    "judge": "Judge the answers that tritgold ask wrote to FOLDER; the report is that of tritgold check.",
    "diagnose": "Name the fault of an engine.",
    "report": "Print a saved report, or write it in other formats.",
    "faults": "List the known faults of engines.",
    "vectors": "Write conformance cases as data, and judge answers to them.",
    "inspect": "Show what a checkpoint holds, and which layout its bytes have.",
    "size": "Show the size of a model in each format, and of its KV cache, without loading it.",
    "convert": "Convert SOURCE to another format; the only losses are those that options allow, and they are listed.",
    "eval": "Measure how often an engine is right, by tasks with one right answer.",
    "bench": "Time an engine that passes the judge.",
    "launch": "Run COMMAND as several processes that share one model.",
    "env": "Print versions, machine and settings.",
}


class _Group(click.Group):
    """Imports a command when it is wanted: one command need not wait for the imports of the others.

    And click's own handling of closed output and of Ctrl-C exits with 1, which is a verdict here.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, without importing anything."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """None for a name that is not in COMMANDS."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module = importlib.import_module(f"tritgold_conformance.commands.{cmd_name}")
            self.add_command(getattr(module, cmd_name))
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in --help, from COMMANDS alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        with leaving():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was named, its options given once: click would quietly take the last."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            refuse_repeats(command, click.Context(command, parent=ctx, info_name=name), rest)
        return name, command, rest


def refuse_repeats(command: click.Command, ctx: click.Context, args: list[str]) -> None:
    """Raise click.UsageError for an option with a value that stands twice and may not."""
    try:
        _, _, order = command.make_parser(ctx).parse_args(list(args))
    except click.UsageError:
        return  # the command itself says so
    for option in dict.fromkeys(order):
        if isinstance(option, click.Option) and not (option.is_flag or option.multiple) and order.count(option) > 1:
            raise click.UsageError(f"{option.opts[0]} is given {order.count(option)} times", ctx)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tritgold")
def main() -> None:
    """Golden outputs and a diagnosis for engines that run ternary (BitNet b1.58) language models.

    Exit codes: 0 yes, 1 no, 2 wrong usage, 3 could not judge (input that cannot be read, output that cannot be
    written), 4 ambiguous, 5 nothing was checked, 130 interrupted.
    """
