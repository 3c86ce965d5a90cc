"""The ``tritgold`` command. Exit codes: 0 conforms, 1 does not, 2 usage, 3 could not judge, 5 nothing was checked.

130 after Ctrl-C.
"""

from typing import Any

import click

from tritgold_conformance.commands import printing
from tritgold_conformance.commands.ask import ask
from tritgold_conformance.commands.bench import bench
from tritgold_conformance.commands.check import check
from tritgold_conformance.commands.compare import compare
from tritgold_conformance.commands.convert import convert
from tritgold_conformance.commands.diagnose import diagnose
from tritgold_conformance.commands.env import env
from tritgold_conformance.commands.faults import faults
from tritgold_conformance.commands.inspect import inspect
from tritgold_conformance.commands.judge import judge
from tritgold_conformance.commands.report import report
from tritgold_conformance.commands.run import run
from tritgold_conformance.commands.trace import trace
from tritgold_conformance.commands.vectors import vectors


class _Group(click.Group):
    """click's own handling of closed output and of Ctrl-C exits with 1, which is a verdict here."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        with printing.leaving():
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


for command in (
    run,
    trace,
    compare,
    check,
    ask,
    judge,
    diagnose,
    report,
    faults,
    vectors,
    inspect,
    convert,
    bench,
    env,
):
    main.add_command(command)
