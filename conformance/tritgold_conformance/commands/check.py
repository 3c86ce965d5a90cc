"""tritgold check: judge an engine against the golden model."""

import sys

import click

from tritgold_conformance.commands import common


@click.command()
@click.option("--engine", "spec", default="xla", show_default=True, help="xla, reference, or module:Class.")
@click.option("--model", help="A checkpoint folder or GGUF file; without it, the embedded model.")
@click.option("--tokens", "count", default=40, show_default=True, help="Length of the input.")
@click.option("--seed", default=1, show_default=True, help="Which input.")
@click.option("--ids", type=common.Ids(), help="The input itself, instead of --tokens and --seed.")
@click.option("--speed/--no-speed", default=True, help="Measure tokens/s of an engine that passes.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of the report and stop.")
@common.json_option
def check(
    spec: str,
    model: str | None,
    count: int,
    seed: int,
    ids: list[int] | None,
    speed: bool,
    schema: bool,
    as_json: bool,
) -> None:
    """Judge an engine against the golden model.

    Operations on golden inputs, activations, logits at every position, tokens/s.

    Exit code 0: it conforms. 1: it does not; the first divergence in execution order is named. 3: it could not
    be judged. 5: nothing was checked.
    """
    from tritgold_conformance import report

    if schema:
        common.print_json(report.json_schema())
        return
    from tritgold_conformance.engine import load_engine
    from tritgold_conformance.golden import golden_run, judging_tokens, vocabulary_of
    from tritgold_conformance.judge import judge

    with common.errors(as_json), common.model_path(model) as path:
        tokens = ids if ids is not None else judging_tokens(count, vocabulary_of(path), seed)
        golden = golden_run(path, tokens)
        verdict = judge(golden, load_engine(spec, path), model or common.EMBEDDED, speed)
    if as_json:
        click.echo(report.to_json(verdict).decode())
    else:
        from tritgold_conformance.render import render

        render(verdict, common.console())
    sys.exit(verdict.exit_code)
