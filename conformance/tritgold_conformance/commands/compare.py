"""tritgold compare: the first divergence between two traces."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from tritgold.errors import TraceError
from tritgold.modes import comparable
from tritgold.trace import Trace
from tritgold.trace_names import TraceName
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.options import ANY_PATH
from tritgold_conformance.comparing.free_running import FreeRunning, compare_traces
from tritgold_conformance.comparing.logits import explain_trace
from tritgold_conformance.comparing.tie_sensitivity import trace_spread
from tritgold_conformance.comparing.ties import follow_ties
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.rendering.terminal import render_comparison

VERDICTS = {0: "agree", 1: "diverge", 5: "nothing was judged to the end"}


@click.command()
@click.argument("golden", type=ANY_PATH)
@click.argument("candidate", type=ANY_PATH)
@click.option("--model", help="The model of both traces; needed to follow broken rounding ties.")
@model_input.model_options
@printing.json_option
def compare(
    golden: Path,
    candidate: Path,
    model: str | None,
    reading: model_input.Reading,
    as_json: bool,
) -> None:
    """Name the first divergence between two traces.

    Compares CANDIDATE with GOLDEN, array by array in execution order. If float noise has broken a rounding tie and
    --model is given, the golden model is run on from there with the other value. Without --model, positions that
    depend on the tie are not judged further, and the output lists them.

    Exit code 0: they agree up to float32 noise and rounding ties. 1: they diverge; the first array that does is
    named. 3: they have different inputs, models or modes. 5: no position was judged to the end.
    """
    with printing.errors(as_json):
        first, second = Trace.load(golden), Trace.load(candidate)
        _require_same_run(first, second, candidate)
        outcome = _walk(first, second, model, reading, golden)
    judged = bool(outcome.compared) and not outcome.blind.all()
    code = 1 if outcome.divergence else 0 if judged else 5
    if as_json:
        printing.print_json(
            {
                "schema": "tritgold.comparison/1",
                "verdict": VERDICTS[code],
                "compared": outcome.compared,
                "missing": outcome.missing,
                "first_divergence": asdict(outcome.divergence) if outcome.divergence else None,
                "ties": [asdict(tie) for tie in outcome.ties],
                "positions_not_judged_to_the_end": [int(p) for p in outcome.blind.nonzero()[0]],
                "noise": outcome.worst if outcome.compared else None,
            }
        )
    else:
        render_comparison(outcome, VERDICTS[code], printing.console())
    sys.exit(code)


def _walk(first: Trace, second: Trace, model: str | None, reading: model_input.Reading, file: Path) -> FreeRunning:
    tokens = len(first.tokens)
    if model is None:
        return compare_traces(first.arrays, second.arrays, tokens)
    with model_input.model_path(model) as path:
        golden = GoldenRun.of(reading.open(path), first.tokens)
        if golden.trace.digest() != first.digest():
            expected = golden.trace.digest()
            what = "is not the golden trace of this model"
            raise TraceError(what, kind="trace-not-golden", file=file, got=first.digest(), expected=expected)
        hides = any(TraceName.of(name).role == "codes" and name not in second.arrays for name in golden.trace.arrays)
        why, told = explain_trace(golden, second.arrays) if hides else (None, True)
        followed, ties = follow_ties(golden, second.arrays, why.ties if why else ())
        spread = None if told else trace_spread(golden)
    outcome = compare_traces(followed.arrays, second.arrays, tokens, spread)
    outcome.ties = ties + outcome.ties
    return outcome


def _require_same_run(first: Trace, second: Trace, file: Path) -> None:
    """Traces of different inputs, models or modes differ for good reasons: their comparison cannot show a bug."""
    for what, a, b, same in (
        ("input", first.tokens, second.tokens, first.tokens == second.tokens),
        ("model", first.model_hash, second.model_hash, first.model_hash == second.model_hash),
        ("mode", first.mode, second.mode, comparable(first.mode, second.mode)),
    ):
        if not same:
            raise TraceError(f"is of another {what}", kind=f"trace-{what}", file=file, got=b or "none", expected=a)
