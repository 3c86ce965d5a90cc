"""The models and matrices whose speed is asked for by name, as data."""

from dataclasses import dataclass, replace
from typing import Literal

from tritgold.config import ModelConfig

SEED = 158


@dataclass(frozen=True)
class ModelShape:
    """A synthetic model: sizes as in ModelConfig. architecture: of the GGUF file that llama.cpp opens as well."""

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

    def config(self) -> ModelConfig:
        """The same as the engines take it. Tokens 1 and 2 are BOS and EOS."""

        sizes = {name: value for name, value in vars(self).items() if name not in ("name", "architecture", "seed")}
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
    # The sizes that an often copied notebook calls 2B and 7B: hidden, inter and layers are its own; it names no heads
    # and no vocabulary, so these are Llama's; nor a context: one in which caches of 16 K positions can be timed.
    ModelShape("notebook-2b", 24, 2048, 5632, 16, 16, 128, 32_000, context=32_768),
    ModelShape("notebook-7b", 32, 4096, 11_008, 32, 32, 128, 32_000, context=32_768),
)  # fmt: skip
MATRICES = (MatrixShape("4096x4096", 4096, 4096),)
GOLDEN = "golden"  # the embedded kjv-ar

SHAPES: dict[str, ModelShape | MatrixShape] = {shape.name: shape for shape in (*MODELS, *MATRICES)}
NAMES = (*SHAPES, GOLDEN)
