"""The ``tritgold`` command. Exit codes: 0 conforms, 1 does not, 2 usage, 3 could not judge, 5 nothing was checked."""

import click

from tritgold_conformance.commands.check import check
from tritgold_conformance.commands.compare import compare
from tritgold_conformance.commands.convert import convert
from tritgold_conformance.commands.env import env
from tritgold_conformance.commands.inspect import inspect
from tritgold_conformance.commands.run import run
from tritgold_conformance.commands.trace import trace


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tritgold")
def main() -> None:
    """Golden outputs and a diagnosis for engines that run ternary (BitNet b1.58) language models."""


for command in (run, trace, compare, check, inspect, convert, env):
    main.add_command(command)
