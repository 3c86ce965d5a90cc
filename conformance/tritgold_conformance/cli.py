"""The ``tritgold`` command. Exit codes: 0 conforms, 1 does not, 2 usage, 3 could not judge, 5 nothing was checked.

130 after Ctrl-C.
"""

from typing import Any

import click

from tritgold_conformance.commands import common
from tritgold_conformance.commands.check import check
from tritgold_conformance.commands.compare import compare
from tritgold_conformance.commands.convert import convert
from tritgold_conformance.commands.diagnose import diagnose
from tritgold_conformance.commands.env import env
from tritgold_conformance.commands.faults import faults
from tritgold_conformance.commands.inspect import inspect
from tritgold_conformance.commands.run import run
from tritgold_conformance.commands.trace import trace


class _Group(click.Group):
    """click's own handling of closed output and of Ctrl-C exits with 1, which is a verdict here."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        with common.leaving():
            return super().invoke(ctx)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tritgold")
def main() -> None:
    """Golden outputs and a diagnosis for engines that run ternary (BitNet b1.58) language models.

    Exit codes: 0 yes, 1 no, 2 wrong usage, 3 could not judge (input that cannot be read, output that cannot be
    written), 4 ambiguous, 5 nothing was checked, 130 interrupted.
    """


for command in (run, trace, compare, check, diagnose, faults, inspect, convert, env):
    main.add_command(command)
