"""Sources for the converter, and what any converted checkpoint must say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from small_models import WIDE, bf16_entry, llama_like, planned, scale_names, seeded, stored

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import Options, convert
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_writer import write_gguf
from tritgold.formats.layouts import Layouts

# TL2 needs rows that are multiples of 32 and at least 256 columns; TL1 tiles that divide both.
TILES = Layouts(tile={"BM": 32, "BK": 96})
TILES_TL1 = Layouts(tile={"BM": 32, "BK": 128, "bm": 32})
SUFFIX = {"hf": "", "sglbitnt": ".bin"}
TO_BITNET = ("hf", "i2_s", "tl1", "tl2", "tq1_0", "tq2_0", "sglbitnt", "gguf-f16", "gguf-f32")
TO_IK_LLAMA = ("iq1_bn", "iq2_bn", "iq2_bn_r4")


def options(to: str, **fields: Any) -> Options:
    """Options with tiles where the target needs them."""
    layouts = {"tl1": TILES_TL1, "tl2": TILES}.get(to, Layouts())
    return Options(**{"layouts": layouts, **fields})


def converted(source: Checkpoint | Path, folder: Path, to: str, **fields: Any) -> Checkpoint:
    """Convert into ``folder`` and open the result without being told anything that it should say itself."""
    source = open_checkpoint(source) if isinstance(source, Path) else source
    path = folder / f"{to}{SUFFIX.get(to, '.gguf')}"
    convert(source, path, to, options(to, **fields))
    return open_checkpoint(path)


def bitnet(folder: Path) -> Path:
    """The seeded model, 256 wide, with a generation_config.json and a chat template beside it."""
    path = seeded(folder, WIDE).write(folder / "bitnet")
    (path / "generation_config.json").write_text('{"eos_token_id": 257}\n')
    (path / "tokenizer_config.json").write_text('{"chat_template": "{{ messages[0].content }}",\r\n "extra": "é"}')
    return path


def silu(folder: Path) -> Path:
    """1bitLLM's graph: SiLU with sub-norms."""
    model = seeded(folder, WIDE)
    model.config["hidden_act"] = "silu"
    return model.write(folder / "silu")


def llama(folder: Path) -> Path:
    """Llama style: no sub-norms, a head of its own, scales that divide; the scales no powers of two."""
    model = llama_like(folder, WIDE)
    for index, name in enumerate(scale_names(WIDE.layers)):
        model.entries[name] = bf16_entry(np.array([3.25 + index / 32], np.float32))
    return model.write(folder / "llama")


def same_trits(first: Checkpoint, second: Checkpoint) -> bool:
    """Every linear's trits, in the order of rows that the arithmetic uses."""
    pairs = zip(first.weights.linears(), second.weights.linears(), strict=True)
    return all(np.array_equal(a.ternary().trits, b.ternary().trits) for (_, a), (_, b) in pairs)


def masters(source: Checkpoint, folder: Path, q: np.ndarray) -> Path:
    """The source's folder with a float32 q_proj instead of a packed one, and no quantization_config."""
    folder.mkdir()
    tensors = load_file(source.path / "model.safetensors")
    for name in [n for n in tensors if n.endswith("weight_scale")]:
        weight = name.removesuffix("_scale")
        rows, columns = tensors[weight].shape[0] * 4, tensors[weight].shape[1]
        values = np.random.default_rng(rows).normal(0, 0.02, (rows, columns)).astype(np.float32)
        tensors[weight] = q if weight.endswith("q_proj.weight") else values
        del tensors[name]
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((source.path / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def metadata(path: Path) -> dict[str, Any]:
    return GgufFile(path).metadata


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A GGUF file with other metadata."""
    file = GgufFile(path)
    changed = dict(file.metadata)
    change(changed)
    out = path.with_name(f"changed-{path.name}")
    write_gguf(out, changed, planned(stored(file.tensors)))
    return out
