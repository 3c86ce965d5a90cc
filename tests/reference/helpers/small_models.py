"""Small checkpoints to be damaged: a Hugging Face folder and a GGUF file as editable parts."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf_bytes as g
import ml_dtypes
import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from refusals import frugal, refusal

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import TritgoldError
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.hf_writer import packed_tensors, write_hf_folder
from tritgold.formats.safetensors_file import SafetensorsFile
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.model import forward

TINY = Shape(hidden=16, inter=16, layers=1, heads=2, kv_heads=1, context=16)
WIDE = Shape(hidden=256, inter=256, layers=1, heads=4, kv_heads=2, context=16)  # rows that TQ2_0 can hold

# Names in a Hugging Face folder.
LAYER = "model.layers.0"
Q, EMBEDDING, HEAD = f"{LAYER}.self_attn.q_proj", "model.embed_tokens.weight", "lm_head.weight"
TOKENS = [256, 72, 105, 33]

# Our names and those of the blk.N tensors of a GGUF file.
GAINS = {name: name for name in ("attn_norm", "attn_sub_norm", "ffn_norm", "ffn_sub_norm")}
LINEARS = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


@dataclass(frozen=True)
class Entry:
    """A tensor's bytes and what is said of them, to be changed."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


Entries = dict[str, Entry]


def planned(entries: Entries) -> list[PlannedTensor]:
    """Entries as the writers take them."""
    return [
        PlannedTensor(name, e.dtype, e.shape, len(e.data), lambda data=e.data: [data]) for name, e in entries.items()
    ]


def stored(tensors: dict[str, StoredTensor]) -> Entries:
    """The tensors of an opened file as entries."""
    return {name: Entry(t.dtype, t.shape, t.data.tobytes()) for name, t in tensors.items()}


def bf16_entry(values: np.ndarray) -> Entry:
    """float32 -> bf16, rounded by ml_dtypes."""
    return Entry("BF16", values.shape, values.astype(ml_dtypes.bfloat16).tobytes())


def packed_entries(name: str, trits: np.ndarray, scale: np.float32) -> Entries:
    """``<name>.weight`` and ``<name>.weight_scale``."""
    tensors = packed_tensors(name, trits.shape, lambda: trits, scale)  # type: ignore[arg-type]
    return {t.name: Entry(t.dtype, t.shape, b"".join(t.chunks())) for t in tensors}


@dataclass
class HfModel:
    """config.json and tensors; change them, then write."""

    config: dict[str, Any]
    entries: Entries
    tokenizer: str

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        write_hf_folder(folder, self.config, planned(self.entries), {"tokenizer.json": self.tokenizer})
        return folder

    def floats(self, name: str) -> np.ndarray:
        """A bf16 tensor, widened here by hand."""
        entry = self.entries[name]
        return (np.frombuffer(entry.data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(entry.shape)


def seeded(folder: Path, shape: Shape = TINY) -> HfModel:
    """The seeded model of this shape, taken apart."""
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    write_seeded_model(source, shape)
    entries = stored(SafetensorsFile(source / "model.safetensors").tensors)
    return HfModel(json.loads((source / "config.json").read_text()), entries, (source / "tokenizer.json").read_text())


def hf_logits(model: HfModel, folder: Path, **options: str) -> np.ndarray:
    """Write, open, run."""
    opened = open_checkpoint(model.write(folder), **options)  # type: ignore[arg-type]
    return forward(TOKENS, opened.weights, opened.config)


def hf_error(model: HfModel, folder: Path) -> TritgoldError:
    """Write, open, be refused: soon, in little memory, with a file of the folder in the message."""
    model.write(folder)
    with frugal():
        error = refusal(lambda: open_checkpoint(folder))
    assert error.file is not None
    assert error.file.startswith(str(folder))
    return error


def llama_like(folder: Path, shape: Shape = TINY) -> HfModel:
    """The seeded model as the Llama family has it: SiLU, no sub-norms, a head of its own, scales that divide.

    The stored inverse scales are powers of two: then x / s and x * (1 / s) are the same number.
    """
    model = seeded(folder, shape)
    model.config |= {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "bitnet"},
    }
    model.entries = {name: e for name, e in model.entries.items() if "sub_norm" not in name}
    for index, name in enumerate(scale_names(shape.layers)):
        model.entries[name] = bf16_entry(np.array([4 << index % 3], np.float32))
    head = model.floats("model.embed_tokens.weight")[::-1]
    model.entries["lm_head.weight"] = bf16_entry(head)
    return model


def scale_names(layers: int) -> list[str]:
    """Every weight_scale in execution order."""
    modules = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]
    return [f"model.layers.{n}.{module}.weight_scale" for n in range(layers) for module in modules]


@dataclass
class GgufModel:
    """Metadata pairs and tensors by name; change them, then write."""

    pairs: dict[str, bytes]
    tensors: dict[str, g.Tensor]

    def write(self, path: Path) -> Path:
        path.write_bytes(g.gguf(self.pairs.values(), self.tensors.values()))
        return path

    def set(self, key: str, kind: int, value: float | str | bytes) -> None:
        self.pairs[key] = g.pair(key, kind, value)

    def alter(self, name: str, **fields: Any) -> None:
        self.tensors[name] = replace(self.tensors[name], **fields)

    def floats(self, name: str, values: np.ndarray) -> None:
        self.tensors[name] = g.f32(name, values)


def as_gguf(opened: Checkpoint | Path, arch: str, type_id: int = g.TYPE_I2_S, permute: bool = False) -> GgufModel:
    """An opened model as a GGUF file's parts. permute: q and k rows in interleaved order, as arch llama has them."""
    opened = open_checkpoint(opened) if isinstance(opened, Path) else opened
    c, w = opened.config, opened.weights
    model = GgufModel({}, {})
    model.set("general.architecture", g.STRING, arch)
    counts = {
        "context_length": c.context,
        "embedding_length": c.hidden,
        "block_count": c.layers,
        "feed_forward_length": c.inter,
        "attention.head_count": c.heads,
        "attention.head_count_kv": c.kv_heads,
        "vocab_size": c.vocab,
        "rope.dimension_count": c.head_dim,
    }
    for key, count in counts.items():
        model.set(f"{arch}.{key}", g.U32, count)
    model.set(f"{arch}.attention.layer_norm_rms_epsilon", g.F32, c.norm_eps)
    model.set(f"{arch}.rope.freq_base", g.F32, c.rope_theta)
    for key, token in (("bos", c.bos), ("eos", c.eos[0])):
        model.set(f"tokenizer.ggml.{key}_token_id", g.U32, token or 0)

    model.floats("token_embd.weight", w.embedding.rows(slice(None)))
    for n, layer in enumerate(w.layers):
        for ours, theirs in GAINS.items():
            if getattr(layer, ours) is not None:
                model.floats(f"blk.{n}.{theirs}.weight", getattr(layer, ours))
        for ours, theirs in LINEARS.items():
            tensor = layer.linear(ours).ternary()
            trits = tensor.trits
            if permute and ours in "qk":
                trits = interleave(trits, c.heads if ours == "q" else c.kv_heads)
            # A multiplying scale, whatever the source's rule.
            scale = tensor.scale if c.scale_rule == "multiply" else 1 / tensor.scale
            name = f"blk.{n}.{theirs}.weight"
            model.tensors[name] = g.Tensor(name, trits.shape, type_id, payload(trits, float(scale), type_id))
    model.floats("output_norm.weight", w.final_norm)
    if w.head is not None:
        model.floats("output.weight", w.head.rows(slice(None)))
    return model


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """LlamaModel.permute of llama.cpp's converters."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def payload(trits: np.ndarray, scale: float, type_id: int) -> bytes:
    """Packed by the test's own I2_S builder or by gguf-py, never by the packings under test."""
    if type_id == g.TYPE_I2_S:
        return g.i2_s((trits.reshape(-1).astype(int) + 1).tolist(), scale)
    return quantize(trits.astype(np.float32) * np.float32(scale), GGMLQuantizationType.TQ2_0).tobytes()
