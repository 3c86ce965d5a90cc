"""Models of a few thousand weights whose sizes fit nothing: odd vocabularies, widths that four does not divide."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tritgold.checkpoint import open_checkpoint
from tritgold.config import ModelConfig
from tritgold.golden import embedded_model
from tritgold.model import forward
from tritgold.quantize import absmean_ternary
from tritgold.ternary import InMemoryTernary, TernaryTensor
from tritgold.trace import Trace
from tritgold.weights import LINEARS, LayerWeights, ModelWeights
from tritgold_xla import XlaEngine

# Llama style: untied head, SiLU, scales that divide, no sub-norms; four query heads on one key head.
LLAMA = ModelConfig(
    vocab=101,
    hidden=42,
    inter=77,
    layers=3,
    heads=4,
    kv_heads=1,
    head_dim=10,
    context=160,
    norm_eps=1e-5,
    rope_theta=1e4,
    activation="silu",
    sub_norms=False,
    tied_head=False,
    scale_rule="divide",
)
# The other combinations; as many key heads as query heads, an attention that is narrower than the residual stream.
MIXED = replace(
    LLAMA,
    vocab=67,
    hidden=35,
    inter=160,
    layers=2,
    heads=3,
    kv_heads=3,
    context=24,
    sub_norms=True,
    tied_head=True,
    scale_rule="multiply",
)


@dataclass(frozen=True, eq=False)
class Matrix:
    """A DenseMatrix in memory."""

    array: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        return self.array[index]


@dataclass(frozen=True, eq=False)
class Online:
    """A weight that is a float master; ``ternary`` is the golden quantiser, which the engine must not call."""

    master: Matrix
    for_golden: bool

    @property
    def shape(self) -> tuple[int, int]:
        return self.master.shape

    def ternary(self) -> TernaryTensor:
        assert self.for_golden, "the engine used somebody else's quantiser"
        return absmean_ternary(self.master.array)


def make_weights(config: ModelConfig, seed: int = 7, online: bool | None = None) -> ModelWeights:
    """Random weights. online: None for trits, else float masters, True where the golden model may quantise them."""
    rng = np.random.default_rng(seed)

    def gain(width: int) -> np.ndarray:
        return rng.normal(1, 0.2, width).astype(np.float32)

    def linear(name: str) -> InMemoryTernary | Online:
        shape = config.linear_shape(name)
        if online is not None:
            return Online(Matrix(rng.normal(0, 0.4, shape).astype(np.float32)), online)
        factor = np.float32(rng.uniform(1, 1.5) * 1.2 / np.sqrt(shape[1]))
        scale = factor if config.scale_rule == "multiply" else 1 / factor
        return InMemoryTernary(TernaryTensor(rng.integers(-1, 2, shape).astype(np.int8), np.asarray(scale)))

    def layer() -> LayerWeights:
        return LayerWeights(
            attn_norm=gain(config.hidden),
            attn_sub_norm=gain(config.q_width) if config.sub_norms else None,
            ffn_norm=gain(config.hidden),
            ffn_sub_norm=gain(config.inter) if config.sub_norms else None,
            **{name: linear(name) for name in LINEARS},
        )

    def matrix() -> Matrix:
        return Matrix(rng.normal(0, 1, (config.vocab, config.hidden)).astype(np.float32))

    layers = tuple(layer() for _ in range(config.layers))
    return ModelWeights(matrix(), layers, gain(config.hidden), None if config.tied_head else matrix())


@dataclass(eq=False)
class Case:
    """A model and what the two implementations make of ``tokens``."""

    config: ModelConfig
    weights: ModelWeights
    tokens: list[int]

    @cached_property
    def engine(self) -> XlaEngine:
        return XlaEngine(self.config, self.weights, capacity=self.config.context)

    @cached_property
    def golden(self) -> Trace:
        trace = Trace()
        forward(self.tokens, self.weights, self.config, trace=trace)
        return trace

    @cached_property
    def trace(self) -> Trace:
        return self.engine.trace(self.tokens)


class Cases:
    """The cases by name, made when first asked for and kept."""

    NAMES = ("seeded", "llama", "mixed")

    def __init__(self) -> None:
        self._made: dict[str, Case] = {}

    def __getitem__(self, name: str) -> Case:
        if name not in self._made:
            self._made[name] = getattr(self, f"_{name}")()
        return self._made[name]

    def _seeded(self) -> Case:
        with embedded_model("seeded") as path:
            checkpoint = open_checkpoint(path)
        config = replace(checkpoint.config, context=48)
        return Case(config, checkpoint.weights, _tokens(config, 30))

    def _llama(self) -> Case:
        # Two chunks of a trace.
        return Case(LLAMA, make_weights(LLAMA), _tokens(LLAMA, 64))

    def _mixed(self) -> Case:
        return Case(MIXED, make_weights(MIXED), _tokens(MIXED, 8))


def _tokens(config: ModelConfig, count: int) -> list[int]:
    return np.random.default_rng(count).integers(0, config.vocab, count).tolist()
