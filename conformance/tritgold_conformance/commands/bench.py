"""tritgold bench: the speed of an engine that passes the judge, and of other engines measured in turn."""

import os
import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tritgold.formats.whole_file import written_whole
from tritgold_conformance.bench import peer_names, table
from tritgold_conformance.bench.comparison import compared, differences, read_report
from tritgold_conformance.bench.models import model_of
from tritgold_conformance.bench.plan import KV_CACHES, MATRIX_ROWS, OF_MATRICES, ROWS, Plan
from tritgold_conformance.bench.results import BenchResults, Report, json_schema, to_json
from tritgold_conformance.bench.run import check, run
from tritgold_conformance.bench.shapes import GOLDEN, NAMES, MatrixShape, ModelShape, shape_of
from tritgold_conformance.bench.synthetic import Say, model_bytes
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.bench_options import PEER, SHAPE, Listed
from tritgold_conformance.commands.env import environment
from tritgold_conformance.commands.leaving import interrupted_by_signals
from tritgold_conformance.commands.options import FILE, POSITIVE, devices_option

DEFAULT_ROWS = ("decode", "greedy", "prefill", "first-token")  # of a model; a matrix has MATRIX_ROWS


@click.command()
@click.option(
    "--shape",
    type=SHAPE,
    metavar="SHAPE",
    help=f"{', '.join(NAMES)} (kjv-ar, the default); a matrix OUTxIN; or a config.json with the sizes.",
)
@click.option("--model", help="A checkpoint or an embedded model such as kjv-ar, instead of --shape.")
@click.option("--engine", default="xla", show_default=True, help="xla, reference, or module:Class.")
@click.option("--rows", type=Listed(*ROWS), help=f"What to measure, of {', '.join(ROWS)}.")
@click.option("--threads", type=Listed(), default="1", show_default=True, help="Thread counts, for example 1,2.")
@click.option("--context", "contexts", type=Listed(), help="Lengths of the KV cache before tokens are decoded.")
@click.option("--tokens", type=Listed(), help="Lengths of prompts; numbers of tokens in a matrix product.")
@click.option("--steps", type=POSITIVE, default=16, show_default=True, help="Tokens decoded in each round.")
@click.option("--runs", type=POSITIVE, default=5, show_default=True, help="Number of rounds.")
@click.option("--layers", type=POSITIVE, help="Cut a named model to this many layers.")
@click.option(
    "--kv", "kv_caches", type=Listed(*KV_CACHES), default=",".join(KV_CACHES), help="KV caches of the row kv."
)
@click.option("--kv-cache", type=click.Choice(KV_CACHES), help="KV cache of all other rows; with xla bf16 by default.")
@click.option("--sequences", type=Listed(), help="Sizes of the row batch; by default 1,2,4,8,16,32,64.")
@click.option("--clients", type=Listed(), help="Clients at once of the row serve; by default 1,4,16.")
@click.option(
    "--peer",
    "peers",
    type=PEER,
    multiple=True,
    metavar="PEER",
    help=f"Time this engine as well, in turn: {peer_names.FORM}.",
)
@devices_option
@click.option("--profile", is_flag=True, help="Time each operation of a decode step alone.")
@click.option("--tune", is_flag=True, help="First find the engine's fastest way to multiply each matrix, and save it.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures to this file."
)
@click.option(
    "--compare", "earlier", type=FILE, help="An earlier report of --json: show how much faster each row is now."
)
@click.option(
    "--fail-below",
    type=click.FloatRange(0, min_open=True),
    metavar="RATIO",
    help="With --compare: exit code 1 if a row is surely below this fraction of its earlier speed.",
)
@click.option("--schema", is_flag=True, help="Print the JSON schema of the report and stop.")
def bench(
    shape: str | None, model: str | None, layers: int | None, json_file: Path | None, schema: bool,
    earlier: Path | None, fail_below: float | None, **asked: Any,
) -> None:  # fmt: skip
    """Time an engine that passes the judge.

    Synthetic models of the named shapes are written once, to XDG_CACHE_HOME/tritgold/bench. Each thread count and each
    peer has its own process; engine and peers are timed in turn, round by round. A configuration that does not pass
    the judge gets no speed. --tune saves its choices in XDG_CACHE_HOME/tritgold/xla-tuning.json; all commands use them
    from then on. Delete the file to return to the built-in rule.

    Exit code 0: everything that was measured has passed. 1: something has not, or with --fail-below a row is slower.
    2: unknown names. 3: it could not be measured. 5: nothing was measured.
    """
    if schema:
        printing.print_json(json_schema())
        return
    if shape is not None and model is not None:
        raise click.UsageError("give --shape or --model, not both")
    if fail_below is not None and earlier is None:
        raise click.UsageError("--fail-below needs --compare FILE")
    named = shape_of(shape or "")
    alone = isinstance(named, MatrixShape)
    asked["rows"] = asked["rows"] or (MATRIX_ROWS if alone else DEFAULT_ROWS)
    beyond = [row for row in asked["rows"] if row not in (*MATRIX_ROWS, *OF_MATRICES)]
    beyond += ["--profile"] * asked["profile"] + ["--peer"] * bool(asked["peers"])
    if alone and beyond:
        what, its_own = ", ".join(beyond), ", ".join((*MATRIX_ROWS, *OF_MATRICES))
        raise click.UsageError(f"{what}: {shape} is one matrix; it has the rows {its_own}")
    if layers is not None and (named is None or alone):
        raise click.UsageError("--layers cuts a synthetic model: give its --shape")
    if json_file is not None:
        _require_place(json_file)
    engine = asked["engine"]
    if asked["tune"] and engine != "xla":
        raise click.UsageError(f"--tune: only the engine xla has several ways to multiply, not {engine}")
    if os.environ.get("TRITGOLD_COORDINATOR"):
        raise click.UsageError(
            "bench starts its own processes and cannot run under tritgold launch; --devices works in one process"
        )
    if asked["devices"] > 1 and (engine != "xla" or asked["profile"]):
        raise click.UsageError(
            "--devices needs --engine xla, and excludes --profile, which times operations on one device"
        )
    if asked["kv_cache"] is None and engine == "xla":
        asked["kv_cache"] = "bf16"
    with printing.errors(False), printing.progress() as say, interrupted_by_signals(), ExitStack() as stack:
        before = None if earlier is None else read_report(earlier)
        file = None if model is None else stack.enter_context(model_input.model_path(model))
        plan = Plan(**{name: value for name, value in asked.items() if value is not None})
        report = _measured(json_file, None if model is not None else shape or GOLDEN, file, layers, say, plan)
    try:
        table.render(report, printing.console())
        slower = before is not None and _compare(before, report, fail_below)
    finally:  # after the table, since the disk may be full by now; and also where the table fails, on a closed pipe
        if json_file is not None:
            with printing.errors(False):
                _write(json_file, report)
    sys.exit(report.exit_code or int(slower))


def _compare(before: Report, report: Report, fail_below: float | None) -> bool:
    """Show the comparison; returns whether a row is surely slower than is allowed."""
    rows = compared(before, report)
    table.render_comparison(rows, differences(before, report), printing.console())
    return fail_below is not None and any(one.high < fail_below for one in rows)


def _require_place(file: Path) -> None:
    """Called before anything is measured. Raises click.UsageError if no report can be written to this path."""
    if not file.parent.is_dir():
        raise click.UsageError(f"--json: {file.parent} is not a folder; make it first")
    if file.exists() and not file.is_file():
        raise click.UsageError(f"--json: {file} is not a regular file; give the name of one")


def _measured(
    json_file: Path | None, shape: str | None, file: Path | None, layers: int | None, say: Say, plan: Plan
) -> Report:
    """The report. If the run is stopped, what was measured so far is written to ``json_file``.

    Errors in the request are raised before a model is written.
    """
    named, model, config = shape_of(shape or ""), None, None
    if isinstance(named, MatrixShape):
        matrices = [(named.out, named.in_)]
    else:
        if isinstance(named, ModelShape):
            cut = named if layers is None else named.cut(layers)
            config = cut.config()
        if plan.needs_model or config is None:
            if config is not None:
                check(plan, config, model_bytes(cut))
            model = model_of(shape, file, layers, say)
            config = model.config
        matrices = list(dict.fromkeys(config.linear_shape(name) for name in ("gate", "down")))
        plan = replace(plan, blocks=config.mask is not None)
    machine, found = environment(), BenchResults()

    def report(complete: bool) -> Report:
        return Report(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            shape=model.name if model is not None else str(shape),
            model="" if model is None else model.path.name,
            config={} if config is None else config.as_dict(),
            command=shlex.join(["tritgold", *sys.argv[1:]]),
            machine={**machine["machine"], "packages": machine["packages"], "variables": machine["variables"]},
            **vars(found),
            complete=complete,
        )

    try:
        run(plan, model, matrices, say, found, config)
    except BaseException:
        if found.results and json_file is not None:
            _write(json_file, report(complete=False))
            click.echo(f"stopped: {len(found.results)} results are in {json_file}", err=True)
        raise
    return report(complete=True)


def _write(path: Path, report: Report) -> None:
    with written_whole(path) as scratch:
        scratch.write_bytes(to_json(report) + b"\n")
