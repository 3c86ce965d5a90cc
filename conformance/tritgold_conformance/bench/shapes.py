"""The models and matrices that can be timed: by name, by size, or by a config.json."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tritgold.config import MAX_CONTEXT, MAX_IN, ModelConfig
from tritgold.errors import ConfigError
from tritgold.formats.untrusted_text import parse_json

SEED = 158
_NOT_CONFIG = ("name", "architecture", "seed", "embedding")


@dataclass(frozen=True)
class ModelShape:
    """A synthetic model: sizes as in ModelConfig. architecture: of the GGUF file that llama.cpp opens as well.

    embedding: standard deviation of embedding and head.
    """

    name: str
    layers: int
    hidden: int
    inter: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int = 4096
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5
    activation: Literal["relu2", "silu"] = "relu2"
    sub_norms: bool = True
    tied_head: bool = True
    architecture: str = "bitnet"
    seed: int = SEED
    embedding: float = 0.7

    def config(self) -> ModelConfig:
        """The configuration for the engines. Tokens 1 and 2 are BOS and EOS."""
        sizes = {name: value for name, value in vars(self).items() if name not in _NOT_CONFIG}
        return ModelConfig(**sizes, scale_rule="multiply", bos=1, eos=(2,))

    def cut(self, layers: int) -> "ModelShape":
        """With fewer layers; the name says so."""
        return self if layers >= self.layers else replace(self, layers=layers, name=f"{self.name}-{layers}layers")

    def small(self) -> "ModelShape":
        """The model of the same family that is judged before this one is timed.

        Every matrix of a layer has the size that is timed; there are two layers, and fewer rows in the vocabulary, so
        that the golden model needs seconds.
        """
        vocab, layers = min(self.vocab, 1024), min(self.layers, 2)
        return replace(self, name=f"{self.name}-judged", vocab=vocab, layers=layers, context=min(self.context, 512))

    def telling(self) -> "ModelShape":
        """The same with an embedding that is small compared with what layers add: for judging by log-probabilities.

        With the usual embedding, a tied head predicts the token that was just read with a probability of nearly 1,
        whatever the layers compute, even nothing. Here logits have a standard deviation of 3.
        """
        return replace(self, name=f"{self.name}-telling", embedding=3 / self.hidden**0.5)


@dataclass(frozen=True)
class MatrixShape:
    """One ternary matrix, [out, in_]."""

    name: str
    out: int
    in_: int


MODELS = (
    # microsoft/bitnet-b1.58-2B-4T, config.json.
    ModelShape("2b-4t", 30, 2560, 6912, 20, 5, 128, 128_256),
    # tiiuae/Falcon3-7B-Instruct-1.58bit, config.json: Llama style, a head of its own.
    ModelShape(
        "falcon3-7b", 28, 3072, 23_040, 12, 4, 256, 131_072,
        context=32_768, rope_theta=1_000_042.0, norm_eps=1e-6,
        activation="silu", sub_norms=False, tied_head=False, architecture="llama",
    ),
    # Qwen/Qwen2.5-32B, config.json, as if its linears were ternary; it has biases on q, k and v, these do not.
    ModelShape(
        "qwen2.5-32b", 64, 5120, 27_648, 40, 8, 128, 152_064,
        context=32_768, rope_theta=1_000_000.0, norm_eps=1e-6,
        activation="silu", sub_norms=False, tied_head=False, architecture="llama",
    ),
    # The sizes that an often copied notebook calls 2B and 7B: hidden, inter and layers are its own; it names no heads
    # and no vocabulary, so these are Llama's; nor a context: one in which caches of 16 K positions can be timed.
    ModelShape("notebook-2b", 24, 2048, 5632, 16, 16, 128, 32_000, context=32_768),
    ModelShape("notebook-7b", 32, 4096, 11_008, 32, 32, 128, 32_000, context=32_768),
)  # fmt: skip
MATRICES = (MatrixShape("4096x4096", 4096, 4096),)
GOLDEN = "golden"  # the embedded kjv-ar

SHAPES: dict[str, ModelShape | MatrixShape] = {shape.name: shape for shape in (*MODELS, *MATRICES)}
NAMES = (*SHAPES, GOLDEN)
UNIT = 256  # weights of a block of TQ2_0: every matrix of a synthetic model has rows of whole blocks


def shape_of(text: str) -> ModelShape | MatrixShape | None:
    """The shape that ``--shape`` names: of SHAPES, a matrix OUTxIN, or the sizes in a config.json; None for others.

    Raises ConfigError for a config.json that cannot be used (``bench-shape``).

    >>> shape_of("8192x4096")
    MatrixShape(name='8192x4096', out=8192, in_=4096)
    """
    if text in SHAPES:
        return SHAPES[text]
    if size := re.fullmatch("([1-9][0-9]{0,6})x([1-9][0-9]{0,6})", text):
        out, in_ = map(int, size.groups())
        return MatrixShape(text, out, in_) if in_ <= MAX_IN else None
    path = Path(text)
    path = path / "config.json" if path.is_dir() else path
    return _of_config(path) if path.suffix == ".json" and path.is_file() else None


def _of_config(path: Path) -> ModelShape:
    """The sizes of any model, as a synthetic ternary one. Biases, experts and windows are ignored.

    Squared ReLU means BitNet's graph with sub-norms, any other activation Llama's.
    """
    try:
        found: Any = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unusable(path, "config.json", str(error), "JSON") from error
    found = found if isinstance(found, dict) else {}
    text = found["text_config"] if isinstance(found.get("text_config"), dict) else found

    def count(key: str, otherwise: int | None = None) -> int:
        value = text.get(key)
        value = otherwise if value is None else value
        if type(value) is not int or value < 1:
            raise _unusable(path, f"key {key!r}", repr(value), "a positive integer")
        return value

    heads, hidden = count("num_attention_heads"), count("hidden_size")
    squared = text.get("hidden_act") in ("relu2", "relu_squared", "relu_sqr")
    shape = ModelShape(
        path.resolve().parent.name if path.name == "config.json" else path.stem,
        count("num_hidden_layers"), hidden, count("intermediate_size"), heads, count("num_key_value_heads", heads),
        count("head_dim", max(1, hidden // heads)), count("vocab_size"),
        context=min(count("max_position_embeddings", 4096), MAX_CONTEXT),
        rope_theta=float(text.get("rope_theta") or 10_000.0), norm_eps=float(text.get("rms_norm_eps") or 1e-5),
        activation="relu2" if squared else "silu", sub_norms=squared, architecture="bitnet" if squared else "llama",
        tied_head=bool(text.get("tie_word_embeddings", False)),
    )  # fmt: skip
    for what, width in {
        "hidden_size": hidden,
        "intermediate_size": shape.inter,
        "heads": heads * shape.head_dim,
    }.items():
        if width % UNIT:
            raise _unusable(path, what, str(width), f"a multiple of {UNIT}: rows are blocks of TQ2_0")
    shape.config()
    return shape


def _unusable(path: Path, thing: str, got: str, expected: str) -> ConfigError:
    hint = "give a model with --model, or one matrix as OUTxIN"
    return ConfigError("cannot be benchmarked", kind="bench-shape", file=path, thing=thing, got=got, expected=expected,
                       hint=hint)  # fmt: skip
