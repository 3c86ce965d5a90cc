"""tritgold compare: two traces, the first divergence between them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tritgold_conformance.commands import common

if TYPE_CHECKING:
    from tritgold.trace import Trace


@click.command()
@click.argument("golden", type=click.Path(path_type=Path))
@click.argument("candidate", type=click.Path(path_type=Path))
@common.json_option
def compare(golden: Path, candidate: Path, as_json: bool) -> None:
    """Name the first divergence between two traces.

    Compares CANDIDATE with GOLDEN, array by array in execution order.

    Exit code 0: they agree up to float32 noise and rounding ties. 1: they diverge; the first array that does is
    named. 3: they are not of one input, model and mode. 5: they have no array in common.
    """
    from dataclasses import asdict

    from tritgold.trace import Trace
    from tritgold_conformance.free_running import compare_traces

    with common.errors(as_json):
        first, second = Trace.load(golden), Trace.load(candidate)
        _require_same_run(first, second, candidate)
        outcome = compare_traces(first.arrays, second.arrays)
    code = 1 if outcome.divergence else 0 if outcome.compared else 5
    if as_json:
        common.print_json(
            {
                "schema": "tritgold.comparison/1",
                "verdict": {0: "agree", 1: "diverge", 5: "nothing was compared"}[code],
                "compared": outcome.compared,
                "missing": outcome.missing,
                "first_divergence": asdict(outcome.divergence) if outcome.divergence else None,
                "ties": [asdict(tie) for tie in outcome.ties],
                "positions_not_judged_to_the_end": [int(p) for p in outcome.blind.nonzero()[0]],
                "noise": outcome.worst,
            }
        )
    else:
        from tritgold_conformance.render import render_comparison

        render_comparison(outcome, common.console())
    sys.exit(code)


def _require_same_run(first: "Trace", second: "Trace", file: Path) -> None:
    """Traces of different inputs, models or modes differ rightly; comparing them would accuse nobody's bug."""
    from tritgold.errors import TraceError
    from tritgold.modes import comparable

    for what, a, b, same in (
        ("input", first.tokens, second.tokens, first.tokens == second.tokens),
        ("model", first.model_hash, second.model_hash, first.model_hash == second.model_hash),
        ("mode", first.mode, second.mode, comparable(first.mode, second.mode)),
    ):
        if not same:
            raise TraceError(f"is of another {what}", kind=f"trace-{what}", file=file, got=b or "none", expected=a)
