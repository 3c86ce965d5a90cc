"""tritgold size: memory and file size of a model by format, without loading it."""

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tritgold.config import ModelConfig
from tritgold.errors import ConfigError, PackingError
from tritgold.formats.hf_config import read_hf_config
from tritgold.formats.layouts import Layouts
from tritgold.formats.packings import packing
from tritgold.kv_cache.base import Sizes
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.weights import LINEARS
from tritgold_conformance.bench.shapes import SHAPES, ModelShape
from tritgold_conformance.commands import model_input, printing
from tritgold_conformance.commands.options import POSITIVE, Chosen, Named, Within
from tritgold_conformance.inspecting.files import ReadOptions, open_container, read_config

FORMATS = ("hf", "i2_s", "tq1_0", "tq2_0", "iq1_bn", "iq2_bn", "q2_0", "f16")
CACHES: tuple[Chosen, ...] = tuple((name, {}) for name in ("f32", "f16", "fp8_e4m3", "q8_0", "int8", "q4_0"))
CONTEXTS = (2048, 4096, 32_768)


@click.command()
@click.argument("model", required=False)
@click.option("--context", type=POSITIVE, multiple=True, help="Positions in the KV cache; may be repeated.")
@click.option("--kv-cache", type=Named(), multiple=True, help="A scheme of the cache; may be repeated.")
@click.option(
    "--bandwidth",
    type=Within(min=0, min_open=True),
    metavar="GB/S",
    help="Memory bandwidth: show the tokens/s that it allows.",
)
@model_input.ignore_key_option
@printing.json_option
def size(
    model: str | None,
    context: tuple[int, ...],
    kv_cache: tuple[Chosen, ...],
    bandwidth: float | None,
    ignore_keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the size of a model in each format, and of its KV cache, without loading it.

    MODEL is a checkpoint, an embedded model, a config.json or its folder, or the name of a shape of `tritgold bench`
    (2b-4t). Embedding and head count as float16 in every format; GB are 1e9 bytes. --bandwidth is divided by the bytes
    that one token reads: all linears, the head, and the cache at the first --context.
    """
    with printing.errors(as_json):
        config, own = _config(model, ignore_keys)
        facts = sizes(config, context or CONTEXTS, kv_cache or CACHES, bandwidth)
        facts |= {"model": model_input.model_name(model), "types": own}
    if as_json:
        printing.print_json(facts)
    else:
        _print(facts)


def sizes(
    config: ModelConfig, contexts: tuple[int, ...], caches: tuple[Chosen, ...], bandwidth: float | None
) -> dict[str, Any]:
    """The facts as plain data. Sizes are None for formats that cannot hold the model. ConfigError: unknown scheme."""
    shapes = {name: config.linear_shape(name) for name in LINEARS}
    linears = config.layers * sum(rows * columns for rows, columns in shapes.values())
    matrix = config.vocab * config.hidden
    dense = 2 * matrix * (1 if config.tied_head else 2)
    gains = 4 * (config.hidden + config.layers * sum(config.vector_widths().values()))
    plain = 2 * linears + dense + gains
    formats = [_format(name, config, shapes, dense + gains, plain) for name in FORMATS]
    shape = Sizes(config.layers, config.kv_heads, config.head_dim)
    cached = [_cache(chosen, shape, contexts) for chosen in caches]
    if bandwidth is not None:
        moved = cached[0]["bytes"][0] or 0
        for row in formats:
            read = None if row["linears"] is None else row["linears"] + 2 * matrix + moved
            row["tokens_per_second"] = None if read is None else round(1e9 * bandwidth / read, 3)
    return {
        "schema": "tritgold.size/1",
        "config": config.as_dict(),
        "weights": {"linears": linears, "embedding": matrix, "head": 0 if config.tied_head else matrix},
        "gain_bytes": gains,
        "formats": formats,
        "contexts": list(contexts),
        "kv_caches": cached,
        "bandwidth": bandwidth,
    }


def _format(
    name: str, config: ModelConfig, shapes: dict[str, tuple[int, int]], others: int, plain: int
) -> dict[str, Any]:
    try:
        linears = config.layers * sum(packing(name).packed_size(shape) for shape in shapes.values())
    except PackingError:
        return {"format": name, "linears": None, "total": None, "of_f16": None}
    total = linears + others + (4 * config.layers * len(LINEARS) if name == "hf" else 0)
    return {"format": name, "linears": linears, "total": total, "of_f16": round(total / plain, 4)}


def _cache(chosen: Chosen, shape: Sizes, contexts: tuple[int, ...]) -> dict[str, Any]:
    scheme = kv_scheme(chosen[0], **chosen[1])
    try:
        found: list[int | None] = [scheme.cache_bytes(shape, tokens) for tokens in contexts]
    except ConfigError:  # the heads do not fill the scheme's blocks
        found = [None for _ in contexts]
    return {"scheme": scheme.id, "bytes": found}


def _config(model: str | None, ignore_keys: tuple[str, ...]) -> tuple[ModelConfig, dict[str, Any] | None]:
    """The configuration, and number of tensors and bytes by type (None if there are no weights)."""
    shape = SHAPES.get(model or "")
    if isinstance(shape, ModelShape):
        return shape.config(), None
    with model_input.model_path(model) as path:
        if path.name == "config.json" or (path.is_dir() and not any(path.glob("*.safetensors"))):
            return read_hf_config(path if path.is_file() else path / "config.json", None, ignore_keys).model, None
        asked = ReadOptions(Layouts(), None, ignore_keys)
        file, _ = open_container(path, 64)
        config = read_config(path, file, asked).model
        if config is None:
            config = model_input.Reading(ignore_keys=ignore_keys).open(Path(path)).config  # raises the reason
        types: dict[str, list[int]] = {}
        for tensor in file.tensors.values():
            count = types.setdefault(tensor.dtype, [0, 0])
            count[0], count[1] = count[0] + 1, count[1] + tensor.data.nbytes
        return config, {name: {"tensors": n, "bytes": b} for name, (n, b) in sorted(types.items())}


def _print(facts: dict[str, Any]) -> None:
    weights = facts["weights"]
    head = f", head {weights['head']:,}" if weights["head"] else ", tied head"
    click.echo(f"{facts['model']}: {weights['linears']:,} ternary weights, embedding {weights['embedding']:,}{head}")
    for name, row in (facts["types"] or {}).items():
        click.echo(f"  in the file: {name:<8}{row['tensors']:>6} tensors {row['bytes']:>16,} bytes")
    rate = facts["bandwidth"]
    columns = ["format", "linears, GB", "with the rest, GB", "of float16"]
    table = Table(*columns, *([f"tokens/s at {rate:g} GB/s"] if rate else []))
    for row in facts["formats"]:
        if row["total"] is None:
            table.add_row(row["format"], "rows do not fill its blocks")
            continue
        cells = [row["format"], f"{row['linears'] / 1e9:.4g}", f"{row['total'] / 1e9:.4g}", f"{row['of_f16']:.1%}"]
        table.add_row(*cells, *([f"{row['tokens_per_second']:.4g}"] if rate else []))
    console = printing.console()
    console.print(table)
    caches = Table("KV cache", *(f"{tokens:,} positions, GB" for tokens in facts["contexts"]))
    for row in facts["kv_caches"]:
        caches.add_row(row["scheme"], *("-" if b is None else f"{b / 1e9:.4g}" for b in row["bytes"]))
    console.print(caches)
