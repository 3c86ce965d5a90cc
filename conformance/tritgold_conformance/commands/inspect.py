"""tritgold inspect: shows the contents of a checkpoint before anything is computed with it."""

import sys
from pathlib import Path

import click

from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.inspecting import inspection
from tritgold_conformance.inspecting.files import ReadOptions
from tritgold_conformance.rendering.inspection import render_inspection


@click.command()
@click.argument("model", required=False)
@click.option("--tensors", is_flag=True, help="List every tensor, with its histogram of trits.")
@click.option("--twin", help="The same model in another format, to decide between layouts that fit.")
@model_input.model_options
@printing.json_option
def inspect(model: str | None, tensors: bool, twin: str | None, reading: model_input.Reading, as_json: bool) -> None:
    """Show what a checkpoint holds, and which layout its bytes have.

    Shows container, tensor types, configuration, ternary weights and their scales, anything unusual about them, and
    every layout that the bytes may have. If several layouts fit, none is chosen. A .safetensors file without its folder
    is accepted too.

    Exit code 0: it opens as a model and its layout is certain. 1: the container is valid, but it is not a model that
    tritgold can run, or not the model of --twin; the reason is shown. 3: the container is unreadable, truncated or has
    parts that were never written. 4: two or more layouts fit; the output shows what would decide between them.
    """
    with printing.errors(as_json), model_input.model_path(model) as path:
        asked = ReadOptions(reading.layouts(), reading.linear_class, reading.ignore_keys)
        if twin is None:
            facts = inspection.inspect_model(path, asked, None, tensors)
        else:
            with model_input.model_path(twin) as other:
                facts = inspection.inspect_model(path, asked, Path(other), tensors)
                facts["twin"]["path"] = twin
        facts["model"] = model_input.model_name(model)
    if as_json:
        printing.print_json(facts)
    else:
        render_inspection(facts, printing.console())
    sys.exit(facts["exit_code"])
