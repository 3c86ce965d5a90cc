"""tritgold ask: writes all answers of an engine to a folder, which ``tritgold judge`` reads."""

from pathlib import Path

import click

from tritgold_conformance.commands import common, printing
from tritgold_conformance.commands.judge_request import JudgeRequest, judge_options
from tritgold_conformance.commands.model_input import model_options
from tritgold_conformance.commands.options import ANY_PATH
from tritgold_conformance.engines.ask import with_speed
from tritgold_conformance.questions.evidence_files import write_evidence


@click.command()
@judge_options
@click.option("--speed/--no-speed", default=True, help="Measure tokens/s.")
@click.option("-o", "--output", "folder", required=True, type=ANY_PATH, help="A new folder.")
@model_options
@printing.json_option
@common.guarded
def ask(request: JudgeRequest, speed: bool, folder: Path, as_json: bool) -> None:
    """Ask an engine everything that check asks, once, and write the answers to a new folder.

    Exit code 0: written. 3: the engine could not be asked, or the folder cannot be written.
    """
    with request.opened() as opened:
        golden, evidence = opened.asked(opened.ladder)
        if speed:
            evidence = with_speed(evidence, opened.engine, golden, opened.say)
        write_evidence(folder, evidence, request.options())
    if as_json:
        printing.print_json({"schema": "tritgold.asked/1", "engine": evidence.name, "folder": str(folder)})
