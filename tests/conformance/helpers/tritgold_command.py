"""The ``tritgold`` command, called in this process."""

import json
from typing import Any

from click.testing import CliRunner, Result

from tritgold_conformance.cli import main


def call(*arguments: object) -> Result:
    """Run the command with these arguments."""
    one_text = ["--one-text"] * (arguments[0] == "check" and "--quick" not in arguments)
    return CliRunner().invoke(main, [*map(str, arguments), *one_text])


def parsed(result: Result) -> dict[str, Any]:
    """The JSON object on stdout; fails if there is anything else."""
    value: dict[str, Any] = json.loads(result.stdout)
    return value
