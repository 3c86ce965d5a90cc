"""tritgold convert: converts a checkpoint to another format, and verifies the result before it gets its name."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich import progress

from tritgold.architectures import GGUF_ARCHITECTURES
from tritgold.convert import TARGETS, Conversion, Options, Progress
from tritgold.convert import convert as run
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.options import ANY_PATH


@click.command()
@click.argument("source")
@click.argument("destination", type=ANY_PATH)
@click.option("--to", required=True, type=click.Choice(list(TARGETS)), help="The format to write.")
@click.option(
    "--quantize", type=click.Choice(["absmean"]), help="Make float master weights ternary; without it they are refused."
)
@click.option(
    "--arch",
    type=click.Choice(list(GGUF_ARCHITECTURES)),
    help="Architecture of a GGUF file; by default the one that fits.",
)
@click.option(
    "--embedding",
    type=click.Choice(["f32", "f16", "bf16"]),
    help="Type of embedding and head; by default the source's.",
)
@click.option(
    "--fallback", type=click.Choice(["i2_s", "f16", "f32"]), help="Format of tensors whose rows the target cannot hold."
)
@click.option("--round-scales", is_flag=True, help="Round scales that do not fit into float16.")
@click.option(
    "--from-tile", multiple=True, metavar="[OUTxIN=]BM,BK[,bm]", help="Tile sizes of the source, with --to tl1 and tl2."
)
@click.option("--to-i2s", type=click.Choice(["128", "64", "4rows"]), help="I2_S layout of the result, 128 by default.")
@click.option(
    "--scale-rule",
    type=click.Choice(["multiply", "divide"]),
    help="How the weights of a Hugging Face folder use their scales; by default as in the source.",
)
@click.option(
    "--shard-size",
    "--split-max-size",
    "shard_size",
    type=float,
    metavar="GB",
    help="Most gigabytes per file: of safetensors, by default 5; of GGUF, by default one file without limit.",
)
@click.option("--tokenizer", type=ANY_PATH, help="A tokenizer.json for the result, instead of the source's own.")
@model_input.model_options
@printing.json_option
def convert(
    source: str,
    destination: Path,
    to: str,
    quantize: str | None,
    arch: str | None,
    embedding: str | None,
    fallback: str | None,
    round_scales: bool,
    from_tile: tuple[str, ...],
    to_i2s: Any,
    scale_rule: Any,
    shard_size: float | None,
    tokenizer: Path | None,
    reading: model_input.Reading,
    as_json: bool,
) -> None:
    """Convert SOURCE to another format; the only losses are those that options allow, and they are listed.

    The result is opened again, and its trits, scales, gains, embedding, configuration and tokenizer are compared with
    those of SOURCE, before it gets the name DESTINATION. --i2s, --q2-0-block and --code3 tell how to read SOURCE. So do
    --tile and --tile-ini, except with --to tl1 and --to tl2: there they are the tiles of the result, and --from-tile
    gives those of SOURCE. Shards of GGUF are named NAME-00001-of-0000N.gguf.

    Exit code 0: converted and verified. 3: refused, and nothing was written.
    """
    tiled = to in ("tl1", "tl2")
    if from_tile and not tiled:
        raise click.UsageError("--from-tile needs --to tl1 or --to tl2; otherwise --tile gives the tiles of the source")
    if to_i2s and "i2_s" not in (to, fallback):
        raise click.UsageError("--to-i2s needs --to i2_s or --fallback i2_s")
    if shard_size is not None and not 0 < shard_size < 1e9:
        raise click.UsageError(f"--shard-size: {shard_size} is not a number of gigabytes above 0 and below 1e9")
    tiles = model_input.Reading(tile=reading.tile, tile_ini=reading.tile_ini) if tiled else model_input.Reading()
    source_as = replace(reading, tile=from_tile, tile_ini=None) if tiled else reading
    with printing.errors(as_json), model_input.model_path(source) as path:
        options = Options(
            layouts=replace(tiles.layouts(), i2_s=to_i2s),
            quantize=quantize is not None,
            architecture=arch,
            embedding=embedding and embedding.upper(),
            fallback=fallback and fallback.upper(),
            round_scales=round_scales,
            scale_rule=scale_rule,
            ignore_keys=reading.ignore_keys,
        )
        if shard_size is not None:
            options = replace(options, shard_bytes=int(shard_size * 1e9))
        checkpoint = source_as.open(path, quantize is not None, tokenizer)
        with _bar() as show:
            done = run(checkpoint, destination, to, options, show)
    facts = _facts(done, model_input.model_name(source))
    if as_json:
        printing.print_json(facts)
    else:
        _print(facts)


@contextmanager
def _bar() -> Iterator[Progress | None]:
    """A progress bar on stderr, if that is a terminal."""
    if not printing.is_terminal(sys.stderr):
        yield None
        return
    text = progress.TextColumn("{task.description:<32.32}")
    columns = (text, progress.BarColumn(), progress.DownloadColumn(), progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=printing.console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def show(what: str, done: int, total: int) -> None:
            if total:
                bar.update(task, description=what, completed=done, total=total)
            else:
                bar.update(task, description=what)

        yield show


def _facts(done: Conversion, source: str) -> dict[str, Any]:
    return {
        "schema": "tritgold.conversion/1",
        "source": source,
        "destination": str(done.path),
        "files": done.files,
        "to": done.target.name,
        "architecture": done.architecture,
        "types": {dtype: {"tensors": count, "bytes": size} for dtype, (count, size) in done.types.items()},
        "linears": done.linears,
        "bits_per_weight": round(done.bits_per_weight, 4),
        "other_type": done.other_type,
        "rounded_scales": done.rounded_scales,
        "codes_read_as_zero": done.read_as_zero,
        "quantised": done.quantised,
        "lost": done.lost(),
        "proved": True,
    }


def _print(facts: dict[str, Any]) -> None:
    architecture = f", architecture {facts['architecture']}" if facts["architecture"] else ""
    proof = "verified; as requested, not lossless: from" if facts["lost"] else "proved equal to"
    what = f"{facts['to']}{architecture}, opened again and {proof} {facts['source']}"
    click.echo(f"{facts['destination']}: {what}")
    if facts["files"] > 1:
        click.echo(f"  {facts['files']} files; opening any one of them reads all")
    for dtype, row in facts["types"].items():
        click.echo(f"  {dtype:<8}{row['tensors']:>6} tensors {row['bytes']:>16,} bytes")
    click.echo(f"  {facts['linears']} linear weights of {facts['bits_per_weight']:.4f} bits a trit, scales included")
    for text in facts["lost"]:
        click.echo(f"  {text}")
    for name, dtype in facts["other_type"].items():
        printing.echo(f"  kept as {dtype}: {name}")
