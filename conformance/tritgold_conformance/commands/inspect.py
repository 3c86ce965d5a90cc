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

    Container, tensor types, configuration, ternary weights and their scales, what is odd about them, and every layout
    that may be meant: one that fits is named, two that fit are never chosen between. A .safetensors file without its
    folder is looked at as well.

    Exit code 0: it opens as a model and its layout is certain. 1: the container is sound, but it is not a model
    tritgold can run, or not the model of its twin; the reason is shown. 3: the container itself is unreadable, cut off
    or never written in places. 4: two or more layouts fit and nothing says which; what would decide is shown.
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
