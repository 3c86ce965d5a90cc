"""tritgold ask: everything that an engine answers, written to a folder that ``tritgold judge`` reads."""

import sys
from pathlib import Path

import click

from tritgold_conformance.commands import common, model_input, printing
from tritgold_conformance.contract.engine_specs import DEFAULT_TIMEOUT, ENGINE_SPECS, MODES


@click.command()
@click.option("--engine", "spec", default="xla", show_default=True, metavar="ENGINE", help=f"{ENGINE_SPECS}.")
@click.option(
    "--timeout", type=click.IntRange(1, 604_800), help=f"Seconds for a run of a program: {DEFAULT_TIMEOUT:g}."
)
@click.option("--mode", type=click.Choice(MODES), help="The arithmetic to judge by; if not said, the engine's own.")
@click.option("--model", help="A checkpoint folder, GGUF file or embedded model (kjv-ar by default).")
@click.option("--tokens", "count", default=40, show_default=True, help="Length of the input.")
@common.depth_options
@click.option("--ids", type=model_input.Ids(), help="The input itself, instead of --tokens and --seed.")
@click.option("--speed/--no-speed", default=True, help="Measure tokens/s.")
@click.option("-o", "--output", "folder", required=True, type=click.Path(path_type=Path), help="A new folder.")
@model_input.model_options
@printing.json_option
@common.guarded
def ask(
    spec: str,
    timeout: int | None,
    mode: str | None,
    model: str | None,
    count: int,
    seed: int,
    depth: str | None,
    ids: list[int] | None,
    speed: bool,
    folder: Path,
    reading: model_input.Reading,
    as_json: bool,
) -> None:
    """Ask an engine everything that check asks, once, and write the answers to a new folder.

    Exit code 0: written. 3: the engine could not be asked, or the folder cannot be written.
    """
    from tritgold_conformance.engines.ask import ask as ask_engine
    from tritgold_conformance.engines.ask import with_speed
    from tritgold_conformance.engines.load import load_engine
    from tritgold_conformance.golden.run import GoldenRun, judging_tokens, named_arithmetic
    from tritgold_conformance.questions.evidence_files import write_evidence
    from tritgold_conformance.questions.ladder import ladder_of

    limit = () if timeout is None else ("--timeout", str(timeout))
    options = (*reading.words(), *limit, *(("--mode", mode) if mode else ()), *common.depth_words(depth, seed))
    with model_input.model_path(model) as path, printing.progress() as say:
        checkpoint = reading.open(path)
        tokens = ids if ids is not None else judging_tokens(count, checkpoint.config.vocab, seed)
        ladder = ladder_of(checkpoint.config, tokens, depth or "default", seed)
        longest = len(tokens) if ladder is None else ladder.longest
        engine = load_engine(spec, path, checkpoint, longest, timeout or DEFAULT_TIMEOUT, say)
        say("golden model")
        golden = GoldenRun.of(checkpoint, tokens, named_arithmetic(mode or engine.mode))
        evidence = ask_engine(engine, golden, say, ladder)
        if speed:
            evidence = with_speed(evidence, engine, golden, say)
        write_evidence(folder, evidence, options)
    if as_json:
        printing.print_json({"schema": "tritgold.asked/1", "engine": evidence.name, "folder": str(folder)})
    sys.exit(0)  # in a guarded process a return is not an answer
