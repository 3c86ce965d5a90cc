"""open_checkpoint: the one function that opens a model from disk.

It takes a path and returns a configuration and weights that are read when needed, or raises one error that lists all
problems. Every tensor of the model is set exactly once, every tensor of the file is used exactly once: an unused scale,
a bias that the graph does not have, a head that differs from a tied embedding are all refused.
"""

import hashlib
import json
import os.path
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tritgold.architectures import architecture_of
from tritgold.config import ModelConfig
from tritgold.errors import ConfigError, FormatError, TritgoldWarning, WeightsError
from tritgold.formats.container import Container
from tritgold.formats.gguf_config import read_gguf_config
from tritgold.formats.gguf_split import open_gguf
from tritgold.formats.hf_config import read_hf_config
from tritgold.formats.layouts import Layouts, said_by
from tritgold.formats.linear_readers import LinearReader, Stored, gguf_reader, hf_reader, sglbitnt_reader
from tritgold.formats.names import GGUF, hf_names
from tritgold.formats.other_files import hint_of_folder
from tritgold.formats.packings import packing
from tritgold.formats.safetensors_folder import SafetensorsFolder
from tritgold.formats.sglbitnt_config import read_sglbitnt_config
from tritgold.formats.sglbitnt_file import SglbitntFile, is_sglbitnt
from tritgold.formats.stored_weights import PackedWeight
from tritgold.formats.tensor_box import ROPE_FACTORS, TensorBox
from tritgold.formats.texts.side_texts import (
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    read_side_text,
    side_texts,
    template_of,
)
from tritgold.formats.untrusted_text import printable
from tritgold.weights import LINEARS, NORMS, VECTORS, LayerWeights, ModelWeights

SUB_NORMS = ("sub_norm.", "inner_attn_ln.", "ffn_layernorm.")  # parts of their names in any container
NOT_ARITHMETIC = ("context", "bos", "eos", "mask", "block")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """An opened model.

    container: the opened file, for inspection. tokenizer: the text of a tokenizer.json that replaces the model's own.
    """

    path: Path
    config: ModelConfig
    weights: ModelWeights
    container: Container
    tokenizer: str | None = None

    def model_hash(self) -> str:
        """SHA-256 of everything that the arithmetic uses: configuration, trits, scales, floats.

        Equal for one model in two formats with the same scale rule; a checkpoint whose scales divide and a GGUF of it
        have different scales and round differently. Context, special tokens and diffusion block are not included.
        Reads every tensor once; takes seconds for a 2B model.
        """
        used = {k: v for k, v in self.config.as_dict().items() if k not in NOT_ARITHMETIC}
        if "rope_scaling" in used:  # what a file calls it changes no arithmetic
            used["rope_scaling"] = {**used["rope_scaling"], "source": ""}
        digest = hashlib.sha256(json.dumps(used, sort_keys=True).encode())
        for name, weight in self.weights.linears():
            tensor = weight.ternary()
            one = repr(tensor.scale.item()) if tensor.scale.ndim == 0 else tensor.scale.astype("<f4").tobytes().hex()
            digest.update(f"{name} {tensor.shape} {one}\n".encode())
            digest.update(packing("hf").pack(tensor.trits))
        for part in self._floats():
            digest.update(part.astype("<f4").tobytes())
        return digest.hexdigest()

    def texts(self) -> dict[str, str]:
        """The text files of the model, by the names that they have in a Hugging Face folder."""
        return side_texts(self.path, self.container, tokenizer=self.tokenizer)

    def tokenizer_json(self) -> str | None:
        """The text of tokenizer.json, built from the metadata if a GGUF file has none; None without a tokenizer."""
        return side_texts(self.path, self.container, (TOKENIZER,), self.tokenizer).get(TOKENIZER)

    def chat_template(self) -> str | None:
        """The chat template, a Jinja text; None if the checkpoint has none."""
        return template_of(side_texts(self.path, self.container, (TEMPLATE, TOKENIZER_CONFIG)), self.path)

    def _floats(self) -> Iterator[np.ndarray]:
        for layer in self.weights.layers:
            yield from (gain for name in VECTORS if (gain := getattr(layer, name)) is not None)
        yield self.weights.final_norm
        for matrix in filter(None, (self.weights.embedding, self.weights.head)):
            yield from (matrix.rows(slice(row, row + 1024)) for row in range(0, matrix.shape[0], 1024))


def open_checkpoint(
    path: str | Path,
    linear_class: str | None = None,
    ignore_keys: tuple[str, ...] = (),
    layouts: Layouts | None = None,
    quantize: bool = False,
    tokenizer: Path | None = None,
) -> Checkpoint:
    """Open a Hugging Face folder, a GGUF file or an SGLBITNT file.

    linear_class: only for packed folders whose config.json has no ``quantization_config``. ignore_keys: unknown keys of
    config.json or of GGUF metadata (full names) to ignore. layouts: what the file does not state about its bytes.
    quantize: make float weights ternary by absmean even if the configuration does not say that they are masters.
    tokenizer: a tokenizer.json to use instead of the model's own, which may be missing or unsupported.

    Raises FormatError (bytes), ConfigError (configuration), WeightsError or PackingError (tensors). Payloads are
    checked for code 3 and non-finite scales here, not at first use; float masters are quantised here.
    """
    given = None if tokenizer is None else read_side_text(tokenizer)
    opened = _open(Path(path), linear_class, ignore_keys, layouts or Layouts(), quantize)
    return opened if given is None else replace(opened, tokenizer=given)


def _open(
    path: Path, linear_class: str | None, ignore_keys: tuple[str, ...], layouts: Layouts, quantize: bool
) -> Checkpoint:
    # os.path: for a name that is too long for the file system it returns False, where Path of Python 3.11 raises.
    if os.path.isdir(path):
        return _open_folder(path, linear_class, ignore_keys, layouts, quantize)
    if os.path.exists(path) and not os.path.isfile(path):
        raise FormatError("is not a regular file", kind="unreadable", file=path)
    if not os.path.isfile(path):
        wanted = "a GGUF or SGLBITNT file, or a folder with config.json and safetensors"
        raise FormatError("does not exist", kind="unreadable", file=path, expected=wanted)
    if path.suffix == ".safetensors":
        hint = "give the folder that holds it and its config.json"
        raise FormatError("is weights without a configuration", kind="no-config", file=path, hint=hint)
    if is_sglbitnt(path):
        return _open_sglbitnt(path, ignore_keys, layouts)
    return _open_gguf(path, ignore_keys, layouts, quantize)


def _open_folder(
    path: Path, linear_class: str | None, ignore_keys: tuple[str, ...], layouts: Layouts, quantize: bool
) -> Checkpoint:
    if not (path / "config.json").is_file():
        raise ConfigError("is missing", kind="no-config", file=path / "config.json", hint=hint_of_folder(path))
    read = read_hf_config(path / "config.json", linear_class, ignore_keys)
    container = SafetensorsFolder(path)
    reader = hf_reader(read.mode, read.model.scale_rule, layouts, quantize)
    config = with_its_norms(path, read.model, container.tensors)
    weights = _assemble_hf(path, container, config, reader)
    return Checkpoint(path, config, weights, container)


def with_its_norms(path: Path, config: ModelConfig, names: Iterable[str]) -> ModelConfig:
    """The configuration of a BitNet, without sub-norms where its files hold none; then a TritgoldWarning says so.

    names: of the tensors. Where some are there and some are not, what is missing is an error of its own.
    """
    if not config.sub_norms or any(part in name for name in names for part in SUB_NORMS):
        return config
    what = "holds no sub-norms: read without them; transformers would put norms of gain 1 in their place"
    warnings.warn(printable(f"{path}: {what}"), TritgoldWarning, stacklevel=4)
    return replace(config, sub_norms=False)


def _assemble_hf(path: Path, container: Container, config: ModelConfig, reader: LinearReader) -> ModelWeights:
    """From tensors under the names, and with the gains, of transformers' class."""
    entry = architecture_of(config)
    box = TensorBox(path, container.tensors, hf_names(entry))
    weights = _assemble(box, config, reader, entry.gain_offset)
    if not config.qkv_bias or config.scale_rule != "multiply":
        return weights
    return replace(weights, layers=tuple(map(_with_scaled_biases, weights.layers)))


def _with_scaled_biases(layer: LayerWeights) -> LayerWeights:
    """Biases times the scales beside packed weights: transformers' AutoBitLinear adds them before it multiplies."""
    scaled: dict[str, np.ndarray] = {}
    for name in LINEARS:
        weight, bias = layer.linear(name), layer.bias(name)
        if bias is not None and isinstance(weight, PackedWeight) and weight.scale is not None:
            scaled[f"{name}_bias"] = bias * weight.scale
    return replace(layer, **scaled)  # type: ignore[arg-type]


def _open_gguf(path: Path, ignore_keys: tuple[str, ...], layouts: Layouts, quantize: bool) -> Checkpoint:
    file = open_gguf(path, layouts.q2_0_block)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise WeightsError("is missing", kind="missing-tensor", file=path, thing="tensor 'token_embd.weight'")
    for name, tensor in file.tensors.items():
        if tensor.dtype == "I8_S":
            what = f"unknown tensor type {file.type_ids[name]} in tensor {printable(repr(name))}"
            hint = "it is I8_S of the bitnet.cpp fork, which holds activations and no weights"
            raise FormatError(what, kind="unknown-type", file=path, hint=hint)
    layouts = said_by(file.metadata, layouts, path)
    tied = "output.weight" not in file.tensors
    factors = file.tensors.get(ROPE_FACTORS)
    config = read_gguf_config(path, file.metadata, embedding.shape[0], tied, ignore_keys, factors)
    config = with_its_norms(path, config, file.tensors)
    reader = gguf_reader(config, file.architecture, layouts, quantize)
    box = TensorBox(path, file.tensors, GGUF)
    if config.rope_scaling is not None and factors is not None:
        box.pass_over(ROPE_FACTORS)
    weights = _assemble(box, config, reader)
    return Checkpoint(path, config, weights, file)


def _open_sglbitnt(path: Path, ignore_keys: tuple[str, ...], layouts: Layouts) -> Checkpoint:
    file = SglbitntFile(path)
    for name in file.scales:
        if file.tensors[name].dtype != "U8":
            thing = printable(f"tensor {name!r}")
            raise WeightsError("is not packed, yet has a scale", kind="scale-unused", file=path, thing=thing)
    config = with_its_norms(path, read_sglbitnt_config(path, file.config, ignore_keys), file.tensors)
    weights = _assemble_hf(path, file, config, sglbitnt_reader(file.scales, layouts))
    return Checkpoint(path, config, weights, file)


def _assemble(box: TensorBox, config: ModelConfig, read_linear: LinearReader, gain_offset: float = 0.0) -> ModelWeights:
    """Take every tensor, let the box raise whatever was wrong, and only then build and check.

    gain_offset: what is added to the gains of norms as the file has them.
    """
    box.expect_layers(config.layers)
    embedding = box.matrix("embedding", (config.vocab, config.hidden))
    head = None if config.tied_head else box.matrix("head", (config.vocab, config.hidden))
    if config.tied_head:
        box.head_copy(embedding)
    linears: dict[str, Stored | None] = {}  # in the order of the file: a disk is read once, from beginning to end
    for name in box.in_file_order(f"layers.{i}.{linear}" for i in range(config.layers) for linear in LINEARS):
        linears[name] = read_linear(box, name, config.linear_shape(name.rpartition(".")[2]))
    layers: list[dict[str, np.ndarray | Stored | None]] = []
    for index in range(config.layers):
        at = f"layers.{index}"
        parts: dict[str, np.ndarray | Stored | None] = dict.fromkeys(VECTORS)
        for name, width in config.vector_widths().items():
            parts[name] = box.vector(f"{at}.{name}", width, gain_offset if name in NORMS else 0.0)
        layers.append(parts | {name: linears[f"{at}.{name}"] for name in LINEARS})
    final_norm = box.vector("final_norm", config.hidden, gain_offset)
    box.finish()

    for linear in [each for each in linears.values() if each is not None]:
        linear.check()
    assert embedding is not None  # finish() has raised otherwise
    return ModelWeights(embedding, tuple(LayerWeights(**parts) for parts in layers), final_norm, head)  # type: ignore[arg-type]
