"""tritgold inspect: what is in a checkpoint, before anything is computed with it."""

import click

from tritgold_conformance.commands import common


@click.command()
@click.argument("model", required=False)
@click.option("--tensors", is_flag=True, help="List every tensor, with its histogram of trits.")
@common.model_options
@common.json_option
def inspect(
    model: str | None, tensors: bool, linear_class: str | None, ignore_keys: tuple[str, ...], as_json: bool
) -> None:
    """Show what a checkpoint holds.

    Container, tensor types, configuration, ternary weights and their scales.

    Exit code 0: it opens as a model. 1: the container is sound, but it is not a model tritgold can run; the
    reason is shown. 3: the container itself is unreadable.
    """
    import sys

    from tritgold_conformance.inspection import inspect_model

    with common.errors(as_json), common.model_path(model) as path:
        facts = inspect_model(path, tensors, linear_class, tuple(ignore_keys))
        facts["model"] = common.model_name(model)
    if as_json:
        common.print_json(facts)
    else:
        from tritgold_conformance.render import render_inspection

        render_inspection(facts, common.console())
    sys.exit(0 if facts["problem"] is None else 1)
