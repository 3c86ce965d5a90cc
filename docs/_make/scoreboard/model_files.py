"""The file of a case: a model in the format, and with the metadata, that an engine is asked to open."""

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scoreboard.environments import ROOT
from scoreboard.manifest import Case
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import TARGETS, Options, convert
from tritgold.errors import TritgoldWarning
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.gguf_split import open_gguf
from tritgold.formats.gguf_writer import write_gguf
from tritgold.formats.layouts import Layouts
from tritgold.formats.packings.q2_0 import Q20
from tritgold.formats.packings.tq2_0 import TQ20
from tritgold.golden import TRAINED, trained_model
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.engines.peers import with_plain_vocabulary

SHAPES = {
    "seeded": Shape(inter=512, layers=2),
    "seeded-512": Shape(hidden=512, inter=1024, layers=2, heads=8),  # IQ2_BN's kernels need rows of 512
    "llama": Shape(inter=512, layers=2),  # without its sub-norms, with SiLU
}
TILES = {"tl1": {"BM": 128, "BK": 64, "bm": 32}, "tl2": {"BM": 128, "BK": 96}}  # BM divides the 128 rows of k and v
USER_DEFINED = 4  # llama.cpp's token type
FIXTURES = ROOT / "tests/peers/fixtures"
FORMATS = (*TARGETS, "hf-bitlinear", "hf-online", "q2_0")


def model_of(case: Case, folder: Path) -> Path:
    """Write the checkpoint below ``folder``; its path. Raises what ``convert`` raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TritgoldWarning)  # of what a format cannot say, which is judged here
        source = _source(case, folder)
        if case.format == "hf" or case.model.startswith("fixture/"):
            return source
        return _converted(case, open_checkpoint(source), folder)


def _source(case: Case, folder: Path) -> Path:
    """The model as a Hugging Face folder."""
    source = folder / "source" / case.model.rpartition("/")[2]
    if case.model.startswith("fixture/"):
        return shutil.copytree(FIXTURES / case.model.removeprefix("fixture/") / "checkpoint", source)
    if case.model in TRAINED:
        shutil.copytree(trained_model(case.model), source)
    else:
        source.mkdir(parents=True)
        write_seeded_model(source, SHAPES[case.model])
    if case.model == "llama":
        convert(without_sub_norms(open_checkpoint(source)), source.with_name("llama-hf"), "hf", Options())
        source = source.with_name("llama-hf")
    if case.silu:
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        (source / "config.json").write_text(json.dumps({**config, "hidden_act": "silu"}), encoding="utf-8")
    return source


def _converted(case: Case, checkpoint: Checkpoint, folder: Path) -> Path:
    if case.format == "hf-bitlinear":
        convert(checkpoint, folder / "bitlinear", "hf", Options(scale_rule="divide"))
        return folder / "bitlinear"
    suffix = "bin" if case.format == "sglbitnt" else "gguf"
    made, target = folder / f"{case.model}-{case.format}.{suffix}", "tq2_0" if case.format == "q2_0" else case.format
    layouts = Layouts(tile=TILES[target]) if target in TILES else Layouts()
    options = Options(layouts=layouts, round_scales=suffix == "gguf")
    if suffix == "gguf":
        options = replace(options, architecture=case.architecture or None, embedding=case.embedding or None)
    convert(checkpoint, made, target, options)
    if case.format == "q2_0":
        as_q2_0(made)
    if case.vocabulary:
        with_plain_vocabulary(made, checkpoint)
    if case.vocabulary == "marked":
        as_marked(made)
    return made


def without_sub_norms(checkpoint: Checkpoint) -> Checkpoint:
    """The same weights in a plain Llama: SiLU, no sub-norms."""
    layers = [replace(layer, attn_sub_norm=None, ffn_sub_norm=None) for layer in checkpoint.weights.layers]
    config = replace(checkpoint.config, sub_norms=False, activation="silu")
    return replace(checkpoint, config=config, weights=replace(checkpoint.weights, layers=tuple(layers)))


def as_marked(path: Path) -> None:
    """Rewrite a file with a plain vocabulary: token 7 is ``<7>``, and in every text it is found first."""
    file = open_gguf(path)
    vocab = len(file.metadata["tokenizer.ggml.tokens"])
    marked: dict[str, Any] = {
        "tokenizer.ggml.tokens": [f"<{token}>" for token in range(vocab)],
        "tokenizer.ggml.token_type": np.full(vocab, USER_DEFINED, np.int32),
    }
    write_gguf(path, {**file.metadata, **marked}, [_planned(tensor) for tensor in file.tensors.values()])


def as_q2_0(path: Path) -> None:
    """Rewrite a TQ2_0 file with linears of Q2_0: the same trits and float16 scales in blocks of 64."""
    file, tensors = open_gguf(path), []
    for tensor in file.tensors.values():
        if tensor.dtype == "TQ2_0":
            unpacked = TQ20().unpack(tensor.data, (tensor.shape[0], tensor.shape[1]))
            data = Q20().pack(unpacked.trits, np.repeat(unpacked.scale, 4, axis=1))
            tensors.append(_planned(replace(tensor, dtype="Q2_0", data=np.frombuffer(data, np.uint8))))
        else:
            tensors.append(_planned(tensor))
    write_gguf(path, dict(file.metadata), tensors)


def _planned(tensor: StoredTensor) -> PlannedTensor:
    return PlannedTensor(tensor.name, tensor.dtype, tensor.shape, tensor.data.size, lambda: [tensor.data.tobytes()])
