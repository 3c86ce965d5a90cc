"""A model of real size in every kind of file that opens.

``python -m measure.opening_kinds KIND SHAPE TARGET`` makes one in a process of its own.
"""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.config import ModelConfig
from tritgold.errors import TritgoldWarning
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_split_writer import write_split
from tritgold.formats.gguf_writer import write_gguf
from tritgold.formats.hf_config_writer import hf_config
from tritgold.formats.hf_writer import bf16_tensor, packed_tensors, write_hf_folder
from tritgold.formats.safetensors_folder import SafetensorsFolder
from tritgold.formats.safetensors_writer import write_sharded
from tritgold.formats.sglbitnt_file import SglbitntFile, is_sglbitnt, write_sglbitnt
from tritgold.golden.seeded import SHAPES, Shape
from tritgold.ternary import LinearWeight
from tritgold.weights import LINEARS
from tritgold_conformance.cli import main as tritgold

ROWS = 256  # of the embedding, which are repeated
SHARD_BYTES = 400_000_000
TILES = ("--tile", "128,128,32")
# Options of ``tritgold convert``.
CONVERTED: dict[str, tuple[str, ...]] = {
    "hf in shards": ("--to", "hf"),
    "i2_s": ("--to", "i2_s"),
    "tl1": ("--to", "tl1", *TILES),
    "tl2": ("--to", "tl2", "--tile", "128,96,32"),
    "tq1_0": ("--to", "tq1_0"),
    "tq2_0": ("--to", "tq2_0"),
    "tq2_0 in shards": ("--to", "tq2_0"),
    "iq1_bn": ("--to", "iq1_bn"),
    "iq2_bn": ("--to", "iq2_bn"),
    "iq2_bn_r4": ("--to", "iq2_bn_r4"),
    "gguf-f16": ("--to", "gguf-f16"),
    "sglbitnt": ("--to", "sglbitnt"),
}


def thin_source(shape: Shape, folder: Path) -> None:
    """A packed folder with one layer of the shape and ROWS tokens, random trits."""
    width = shape.hidden // shape.heads
    config = ModelConfig(
        vocab=ROWS, hidden=shape.hidden, inter=shape.inter, layers=1, heads=shape.heads, kv_heads=shape.kv_heads,
        head_dim=width, context=shape.context, norm_eps=1e-5, rope_theta=5e5, activation="relu2", sub_norms=True,
        tied_head=True, scale_rule="multiply",
    )  # fmt: skip
    folder.mkdir(parents=True)
    write_hf_folder(folder, hf_config(config), _drawn(config), {})


def _drawn(config: ModelConfig) -> Iterator[PlannedTensor]:
    """Tensors in the order of published files; a matrix is drawn when it is written."""
    random = np.random.default_rng(158)
    matrix = (config.vocab, config.hidden)
    yield bf16_tensor("model.embed_tokens.weight", matrix, lambda: [random.random(matrix, np.float32)])
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    names |= {"attn_sub_norm": "self_attn.attn_sub_norm", "ffn_sub_norm": "mlp.ffn_sub_norm"}
    for name, width in config.vector_widths().items():
        gain = random.random(width, np.float32) + 1
        yield bf16_tensor(f"model.layers.0.{names[name]}.weight", (width,), partial(_times, gain))
    for n, name in enumerate(LINEARS):
        size, block = config.linear_shape(name), "self_attn" if name in "qkvo" else "mlp"
        trits = random.integers(-1, 2, size, np.int8)
        scale = (20 + n) / 8 / 64  # of few bits, which every format holds
        yield from packed_tensors(f"model.layers.0.{block}.{name}_proj", size, partial(_same, trits), scale)
    yield bf16_tensor("model.norm.weight", (config.hidden,), lambda: [np.ones(config.hidden, np.float32)])


def make(kind: str, shape: Shape, target: Path) -> None:
    """A model of this shape in a file, or files, of this kind.

    One layer is made, by the command of users where there is one, and then stands in the file as often as the shape has
    layers, and the rows of the embedding as often as it has tokens: opening reads all of it.
    """
    with tempfile.TemporaryDirectory(prefix="thin-", dir=target.parent) as folder:
        source = thin = Path(folder) / "source"
        thin_source(shape, source)
        if kind != "hf":
            thin = source.with_name("thin" + target.suffix)
            if kind in CONVERTED:
                tritgold(["convert", str(source), str(thin), *CONVERTED[kind]], standalone_mode=False)
            else:
                MADE[kind](source, thin)
        deepen(thin, target, shape, SHARD_BYTES if kind.endswith("in shards") else 1 << 62)


def deepen(thin: Path, target: Path, shape: Shape, shard_bytes: int) -> None:
    """The file of one layer again, with all layers of the shape and all rows of its embedding."""
    if thin.is_dir():
        config = json.loads((thin / "config.json").read_text())
        config |= {"num_hidden_layers": shape.layers, "vocab_size": _vocab(shape)}
        target.mkdir()
        (target / "config.json").write_text(json.dumps(config))
        write_sharded(target, _repeated(SafetensorsFolder(thin).tensors, shape), {"format": "pt"}, shard_bytes)
    elif is_sglbitnt(thin):
        file = SglbitntFile(thin)
        config = {**file.config, "num_hidden_layers": shape.layers, "vocab_size": _vocab(shape)}
        scales = {
            name.replace("layers.0.", f"layers.{n}."): scale
            for name, scale in file.scales.items()
            for n in range(shape.layers)
        }
        write_sglbitnt(target, config, _repeated(file.tensors, shape), scales)
    else:
        gguf = GgufFile(thin)
        sizes = {"block_count": shape.layers, "vocab_size": _vocab(shape)}
        metadata = {**gguf.metadata, **{f"{gguf.architecture}.{key}": size for key, size in sizes.items()}}
        plan = _repeated(gguf.tensors, shape)
        write_gguf(target, metadata, plan) if shard_bytes > 1 << 40 else write_split(
            target, metadata, plan, shard_bytes
        )


def _times(value: Any, times: int = 1) -> list[Any]:
    return [value] * times


def _same(value: np.ndarray) -> np.ndarray:
    return value


def _vocab(shape: Shape) -> int:
    """A multiple of the rows that are repeated, at least the shape's own."""
    return -(-shape.vocab // ROWS) * ROWS


def _repeated(tensors: Mapping[str, StoredTensor], shape: Shape) -> list[PlannedTensor]:
    """Each tensor of the layer once for every layer, the rows of the embedding as often as the vocabulary has them."""
    plan = []
    for name, t in tensors.items():
        data = memoryview(np.ascontiguousarray(t.data)).cast("B")
        if "embed" in name or name == "token_embd.weight":
            times = _vocab(shape) // ROWS
            rows = (t.shape[0] * times, *t.shape[1:])
            plan.append(PlannedTensor(name, t.dtype, rows, len(data) * times, partial(_times, data, times)))
            continue
        layers = shape.layers if ".0." in name else 1
        for n in range(layers):
            own = name.replace(".0.", f".{n}.", 1)
            plan.append(PlannedTensor(own, t.dtype, t.shape, len(data), partial(_times, data)))
    return plan


def _floats(
    source: Path, target: Path, config: Callable[[ModelConfig], dict[str, object]], halves: bool = False
) -> None:
    """Trit x scale in bfloat16 for every linear, and the other tensors as they are. halves: the lower rows twice it."""
    model = open_checkpoint(source)
    linears = {_stored_name(model, name): weight for name, weight in model.weights.linears()}

    def plan() -> Iterator[PlannedTensor]:
        for name, tensor in model.container.tensors.items():
            if name.endswith("weight_scale"):
                continue
            if name in linears:
                weight = linears[name]
                yield bf16_tensor(name, weight.shape, partial(_dense, weight, halves))
            else:
                yield PlannedTensor(
                    name, tensor.dtype, tensor.shape, tensor.data.nbytes, partial(_times, memoryview(tensor.data))
                )

    target.mkdir()
    write_hf_folder(target, config(model.config), plan(), {})


def _dense(weight: LinearWeight, halves: bool) -> list[np.ndarray]:
    values = weight.ternary().dense()
    values[len(values) // 2 :] *= 2 if halves else 1
    return [values]


def _stored_name(model: Checkpoint, name: str) -> str:
    """``layers.0.q`` -> ``model.layers.0.self_attn.q_proj.weight``."""
    layers, number, what = name.split(".")
    block = "self_attn" if what in ("q", "k", "v", "o") else "mlp"
    found = f"model.{layers}.{number}.{block}.{what}_proj.weight"
    assert found in model.container.tensors
    return found


def _without_section(config: ModelConfig) -> dict[str, object]:
    return {key: value for key, value in hf_config(config).items() if key != "quantization_config"}


def _masters(source: Path, target: Path) -> None:
    _floats(source, target, lambda config: hf_config(config, "online"))


def _unpacked(source: Path, target: Path) -> None:
    _floats(source, target, _without_section)


def _rows(source: Path, target: Path) -> None:
    """Two scales a matrix, one for each half of its rows."""
    _floats(source, target, _without_section, halves=True)


def _q6_k(source: Path, target: Path) -> None:
    """TQ2_0 with an embedding in Q6_K blocks: random ones, whose scales are small."""
    plain = target.with_name("plain.gguf")
    tritgold(["convert", str(source), str(plain), "--to", "tq2_0"], standalone_mode=False)
    whole = GgufFile(plain)

    def plan(tensor: StoredTensor) -> PlannedTensor:
        dtype, data = tensor.dtype, tensor.data.tobytes()
        if tensor.name == "token_embd.weight":
            raw = np.random.default_rng(158).integers(0, 256, (tensor.shape[0] * tensor.shape[1] // 256, 210), np.uint8)
            raw[:, 208:] = np.frombuffer(np.float16(0.001).tobytes(), np.uint8)
            dtype, data = "Q6_K", raw.tobytes()
        return PlannedTensor(tensor.name, dtype, tensor.shape, len(data), lambda: [data])

    write_gguf(target, whole.metadata, [plan(tensor) for tensor in whole.tensors.values()])


MADE: dict[str, Callable[[Path, Path], None]] = {
    "hf, masters": _masters,
    "hf, unpacked": _unpacked,
    "hf, unpacked, two scales": _rows,
    "tq2_0, embedding Q6_K": _q6_k,
}
KINDS = ("hf", *CONVERTED, *MADE)


def opened_path(target: Path) -> Path:
    """What is opened: the file itself, or the first of its shards."""
    return next(iter(sorted(target.parent.glob(f"{target.stem}-00001-of-*.gguf"))), target)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TritgoldWarning)
        make(sys.argv[1], SHAPES[sys.argv[2]], Path(sys.argv[3]))
    print(json.dumps({"made": str(opened_path(Path(sys.argv[3])))}))
