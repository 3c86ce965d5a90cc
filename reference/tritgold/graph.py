"""The graph as data: every operation of a forward pass, in execution order, with what it reads and writes.

``model.forward`` is the graph as code, to be read; this table is the same graph for code that must walk it: the
judge gives an engine one operation at a time with golden inputs, and reports the first one that differs. A test holds
the two together: a trace has exactly these arrays, in this order, of these dtypes and shapes.

Names: ``layers.<n>.<what>``. A linear ``q`` reads ``attn_in.codes`` and ``attn_in.scale`` and writes ``q.acc``
(int32 accumulator) and ``q.out`` (float32, its bias included). Shapes are those of the golden arithmetic; that of
llama.cpp has a scale, and a sum, for each block of channels.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal, Protocol

from tritgold.config import ModelConfig
from tritgold.trace_names import TraceName

Kind = Literal[
    "embedding",
    "rms_norm",
    "quantize",
    "bit_linear",
    "rope",
    "softmax",
    "mix",
    "ffn_activation",
    "add",
    "lm_head",
]
DType = Literal["float32", "int8", "int32", "int64"]
# keys: the positions that are read, in a pass from position 0 as many as tokens. Others: the sizes of a ModelConfig.
Axis = Literal["tokens", "keys", "vocab", "hidden", "inter", "heads", "kv_heads", "head_dim", "q_width", "kv_width"]


@dataclass(frozen=True)
class Traced:
    """An array that an operation reads or writes. name: in a trace; ``tokens`` are the input ids."""

    name: str
    dtype: DType
    axes: tuple[Axis, ...]

    @property
    def token_axis(self) -> int:
        """The axis that grows with the tokens: 1 for softmax weights, 0 for everything else."""
        return self.axes.index("tokens")

    def shape(self, config: ModelConfig, tokens: int) -> tuple[int, ...]:
        """Its shape in a pass over so many tokens from position 0."""
        return tuple(tokens if axis in ("tokens", "keys") else getattr(config, axis) for axis in self.axes)


@dataclass(frozen=True)
class Operation:
    """One node. at: its name, taken apart. inputs, outputs: arrays by role (``x``, ``codes``, ``acc``)."""

    at: TraceName
    kind: Kind
    inputs: dict[str, Traced]
    outputs: dict[str, Traced]

    @cached_property
    def name(self) -> str:
        """``layers.<layer>.<what>``, or ``<what>``."""
        return str(self.at)

    @cached_property
    def reads(self) -> dict[str, str]:
        """The names of the inputs, by role."""
        return {role: array.name for role, array in self.inputs.items()}

    @cached_property
    def writes(self) -> dict[str, str]:
        """The names of the outputs, by role."""
        return {role: array.name for role, array in self.outputs.items()}


class GraphShape(Protocol):
    """What decides the graph; a ModelConfig is one."""

    @property
    def layers(self) -> int:
        """Decoder layers."""

    @property
    def sub_norms(self) -> bool:
        """RMSNorms before o and down."""

    @property
    def qk_norms(self) -> bool:
        """RMSNorms of the heads of q and k."""

    @property
    def post_norms(self) -> bool:
        """RMSNorms before the residual connections."""


@dataclass(frozen=True)
class TracedShape:
    """The graph that a trace shows, for code that has the arrays and not the model."""

    layers: int
    sub_norms: bool
    qk_norms: bool = False
    post_norms: bool = False

    @classmethod
    def of(cls, names: Iterable[str]) -> "TracedShape":
        """From the names of the arrays.

        >>> TracedShape.of(["layers.0.q.out", "layers.1.attn_sub_norm", "logits"])
        TracedShape(layers=2, sub_norms=True, qk_norms=False, post_norms=False)
        """
        found = [TraceName.of(name) for name in names]
        layers = max((name.layer for name in found if name.layer is not None), default=-1) + 1

        def has(*norms: str) -> bool:
            return any(name.what in norms for name in found)

        return cls(
            layers,
            has("attn_sub_norm", "ffn_sub_norm"),
            has("q_norm", "k_norm"),
            has("attn_post_norm", "ffn_post_norm"),
        )


def operations(config: GraphShape) -> Iterator[Operation]:
    """All operations of a forward pass, in execution order."""
    return iter(_operations(config.layers, config.sub_norms, config.qk_norms, config.post_norms))


def traced_arrays(config: GraphShape) -> dict[str, Traced]:
    """Every array of a trace by its name, in execution order."""
    return {array.name: array for operation in operations(config) for array in operation.outputs.values()}


def trace_names(config: GraphShape) -> list[str]:
    """Every traced name in execution order."""
    return list(traced_arrays(config))


Written = dict[str, tuple[str, DType, tuple[Axis, ...]]]  # role -> name within the layer, dtype, axes


@cache
def _operations(layers: int, sub_norms: bool, qk_norms: bool, post_norms: bool) -> tuple[Operation, ...]:
    graph, shape = _Graph(), TracedShape(layers, sub_norms, qk_norms, post_norms)
    stream = graph.one("embedding", "embedding", "hidden", tokens=Traced("tokens", "int64", ("tokens",)))
    for graph.layer in range(layers):
        stream = _layer(graph, stream, shape)
    graph.layer = None
    graph.one("logits", "lm_head", "vocab", x=graph.one("final_norm", "rms_norm", "hidden", x=stream))
    return tuple(graph.made)


def _layer(graph: "_Graph", stream: Traced, shape: GraphShape) -> Traced:
    """One decoder layer. stream: the residual stream that it reads; returns the one that it leaves."""
    x = graph.quantize("attn_in", graph.one("attn_norm", "rms_norm", "hidden", x=stream))
    q = graph.linear("q", x, "q_width")
    k = graph.linear("k", x, "kv_width")
    v = graph.linear("v", x, "kv_width")
    q_heads: tuple[Axis, ...] = ("tokens", "heads", "head_dim")
    k_heads: tuple[Axis, ...] = ("tokens", "kv_heads", "head_dim")
    if shape.qk_norms:
        q = graph.add("q_norm", "rms_norm", {"x": q}, {"x": ("q_norm", "float32", q_heads)})[0]
        k = graph.add("k_norm", "rms_norm", {"x": k}, {"x": ("k_norm", "float32", k_heads)})[0]
    turned: Written = {"q": ("q_rope", "float32", q_heads), "k": ("k_rope", "float32", k_heads)}
    q, k = graph.add("rope", "rope", {"q": q, "k": k}, turned)
    probs = graph.add("probs", "softmax", {"q": q, "k": k}, {"x": ("probs", "float32", ("heads", "tokens", "keys"))})[0]
    a = graph.one("attn_mix", "mix", "q_width", probs=probs, v=v)
    if shape.sub_norms:
        a = graph.one("attn_sub_norm", "rms_norm", "q_width", x=a)
    o = graph.linear("o", graph.quantize("o_in", a), "hidden")
    if shape.post_norms:
        o = graph.one("attn_post_norm", "rms_norm", "hidden", x=o)
    stream = graph.one("attn_residual", "add", "hidden", a=stream, b=o)

    x = graph.quantize("ffn_in", graph.one("ffn_norm", "rms_norm", "hidden", x=stream))
    gate = graph.linear("gate", x, "inter")
    up = graph.linear("up", x, "inter")
    f = graph.one("ffn_act", "ffn_activation", "inter", gate=gate, up=up)
    if shape.sub_norms:
        f = graph.one("ffn_sub_norm", "rms_norm", "inter", x=f)
    down = graph.linear("down", graph.quantize("down_in", f), "hidden")
    if shape.post_norms:
        down = graph.one("ffn_post_norm", "rms_norm", "hidden", x=down)
    return graph.one("ffn_residual", "add", "hidden", a=stream, b=down)


class _Graph:
    """Operations as they are added, in execution order; each method returns what its operation writes."""

    def __init__(self) -> None:
        self.made: list[Operation] = []
        self.layer: int | None = None  # in which operations are added; None: outside

    def add(self, what: str, kind: Kind, reads: dict[str, Traced], writes: Written) -> tuple[Traced, ...]:
        """An operation of any kind."""
        at = TraceName(self.layer, what)
        outputs = {role: Traced(at.sibling(name), dtype, axes) for role, (name, dtype, axes) in writes.items()}
        self.made.append(Operation(at, kind, reads, outputs))
        return tuple(outputs.values())

    def one(self, what: str, kind: Kind, width: Axis, **reads: Traced) -> Traced:
        """An operation with one result, float32 [tokens, width], which has its name."""
        return self.add(what, kind, reads, {"x": (what, "float32", ("tokens", width))})[0]

    def quantize(self, what: str, x: Traced) -> tuple[Traced, ...]:
        """codes and scale."""
        writes: Written = {
            "codes": (f"{what}.codes", "int8", x.axes),
            "scale": (f"{what}.scale", "float32", ("tokens",)),
        }
        return self.add(what, "quantize", {"x": x}, writes)

    def linear(self, what: str, quantized: tuple[Traced, ...], width: Axis) -> Traced:
        """The output of a linear; its accumulator is read by nothing else."""
        axes: tuple[Axis, ...] = ("tokens", width)
        writes: Written = {"acc": (f"{what}.acc", "int32", axes), "out": (f"{what}.out", "float32", axes)}
        return self.add(what, "bit_linear", dict(zip(("codes", "scale"), quantized, strict=True)), writes)[1]
