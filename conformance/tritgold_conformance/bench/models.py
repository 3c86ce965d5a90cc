"""From what was named to files that engines open: the timed model, the judged one, and the same for the peers."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.config import ModelConfig
from tritgold.formats.hf_config_writer import hf_config
from tritgold.formats.hf_writer import bf16_tensor, packed_tensors, write_hf_folder
from tritgold.formats.names import HF, written_name
from tritgold.formats.whole_file import written_folder
from tritgold.golden import DEFAULT, trained_model
from tritgold.ternary import DenseMatrix, LinearWeight
from tritgold_conformance.bench.memory import head_weights, ternary_weights
from tritgold_conformance.bench.precheck import quietly_opened
from tritgold_conformance.bench.shapes import GOLDEN, SEED, ModelShape, shape_of
from tritgold_conformance.bench.synthetic import Say, cache_folder, synthetic_model

SMALL = 60_000_000  # weights of a model that is judged itself


@dataclass(frozen=True)
class Model:
    """name: for the report. path: what is timed; judged: what the judge runs before."""

    name: str
    path: Path
    judged: Path
    config: ModelConfig


def model_of(shape: str | None, file: Path | None, layers: int | None, say: Say) -> Model:
    """The model of a named shape, written where it is not there yet, or the file.

    Raises what opening a checkpoint raises, and what writing a synthetic one does.
    """
    if shape == GOLDEN:
        file = trained_model(DEFAULT)
    if file is not None:
        config = quietly_opened(file).config
        return Model(shape or file.name, file, _judged_for(file, config, say), config)
    named = shape_of(str(shape))
    assert isinstance(named, ModelShape)
    cut = named if layers is None else named.cut(layers)
    small = synthetic_model(cut.small(), cache_folder(), say)
    return Model(cut.name, synthetic_model(cut, cache_folder(), say), small, cut.config())


def _judged_for(file: Path, config: ModelConfig, say: Say) -> Path:
    """The file itself where the golden model needs seconds for it, else a small model of its sizes."""
    widths = {config.hidden, config.inter, config.q_width}
    if ternary_weights(config) + head_weights(config) <= SMALL or any(width % 256 for width in widths):
        return file
    if config.activation == "relu2" and not config.sub_norms:
        return file  # a graph that no GGUF file has
    own: dict[str, Any] = {"name": f"file-{config.hidden}-{config.inter}", "seed": SEED}
    own["architecture"] = "bitnet" if config.sub_norms else "llama"
    sizes = {f.name: getattr(config, f.name) for f in fields(ModelShape) if f.name not in own}
    return synthetic_model(ModelShape(**own, **sizes).small(), cache_folder(), say)


def _kept(model: Model, what: str) -> Path:
    """Where a conversion is kept between runs; two files of one name are two models."""
    return cache_folder() / f"{model.name}-{quietly_opened(model.path).model_hash()[:8]}-{what}"


def for_transformers(model: Model, say: Say) -> Path:
    """A Hugging Face folder: the model itself, or the same weights with bfloat16 embedding and scales."""
    if model.path.is_dir():
        return model.path
    folder = _kept(model, "hf")
    if not folder.is_dir():
        say("writing the model for transformers")
        with written_folder(folder) as scratch:
            _write_folder(scratch, quietly_opened(model.path))
    return folder


def _write_folder(folder: Path, checkpoint: Checkpoint) -> None:
    """Weights and config.json; no tokenizer, for no text is read. One matrix is in memory at a time."""
    c, w = checkpoint.config, checkpoint.weights
    vectors = {"final_norm": w.final_norm}
    for index, layer in enumerate(w.layers):
        vectors |= {f"layers.{index}.{norm}": getattr(layer, norm) for norm in c.vector_widths()}
    matrices = {"embedding": w.embedding} if w.head is None else {"embedding": w.embedding, "head": w.head}
    tensors = [bf16_tensor(written_name(HF, name), tuple(m.shape), partial(_rows, m)) for name, m in matrices.items()]
    tensors += [bf16_tensor(written_name(HF, name), v.shape, partial(list, [v])) for name, v in vectors.items()]
    for name, weight in w.linears():
        stored, size = written_name(HF, name).removesuffix(".weight"), c.linear_shape(name.rpartition(".")[2])
        tensors += packed_tensors(stored, size, partial(_trits, weight), weight.ternary().with_one_scale().scale)
    write_hf_folder(folder, hf_config(c), tensors, {})


def _rows(matrix: DenseMatrix) -> Iterator[np.ndarray]:
    return (matrix.rows(slice(row, min(row + 4096, matrix.shape[0]))) for row in range(0, matrix.shape[0], 4096))


def _trits(weight: LinearWeight) -> np.ndarray:
    return weight.ternary().trits
