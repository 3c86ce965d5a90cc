"""The graph as data: every operation of a forward pass, in execution order, with what it reads and writes.

``model.forward`` is the graph as code, to be read; this table is the same graph for whoever must walk it: the
judge, which gives an engine one operation at a time with golden inputs, and reports the first one that differs.
A test holds the two together: a trace has exactly these names in exactly this order.

Names: ``layers.<n>.<what>``. A linear ``q`` reads ``attn_in.codes`` and ``attn_in.scale`` and writes ``q.acc``
(int32 accumulator) and ``q.out`` (float32).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

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


@dataclass(frozen=True)
class Operation:
    """One node. ``reads`` and ``writes`` map a role (``x``, ``codes``, ``acc``) to the name of a traced array."""

    name: str
    kind: Kind
    reads: dict[str, str]
    writes: dict[str, str]


class GraphShape(Protocol):
    """What decides the graph; a ModelConfig is one."""

    @property
    def layers(self) -> int:
        """Decoder layers."""

    @property
    def sub_norms(self) -> bool:
        """RMSNorms before o and down."""


@dataclass(frozen=True)
class TracedShape:
    """The graph that a trace shows, for whoever has the arrays and not the model."""

    layers: int
    sub_norms: bool

    @classmethod
    def of(cls, names: Iterable[str]) -> "TracedShape":
        """From the names of the arrays.

        >>> TracedShape.of(["layers.0.q.out", "layers.1.attn_sub_norm", "logits"])
        TracedShape(layers=2, sub_norms=True)
        """
        parts = [name.split(".") for name in names]
        numbers = [int(p[1]) for p in parts if p[0] == "layers" and len(p) > 2 and p[1].isdecimal()]
        return cls(max(numbers, default=-1) + 1, any(p[-1] in ("attn_sub_norm", "ffn_sub_norm") for p in parts))


def operations(config: GraphShape) -> Iterator[Operation]:
    """All operations of a forward pass, in execution order."""
    yield Operation("embedding", "embedding", {"tokens": "tokens"}, {"x": "embedding"})
    stream = "embedding"
    for index in range(config.layers):
        yield from _layer(f"layers.{index}", stream, config.sub_norms)
        stream = f"layers.{index}.ffn_residual"
    yield Operation("final_norm", "rms_norm", {"x": stream}, {"x": "final_norm"})
    yield Operation("logits", "lm_head", {"x": "final_norm"}, {"x": "logits"})


def _layer(at: str, stream: str, sub_norms: bool) -> Iterator[Operation]:
    def here(name: str) -> str:
        return f"{at}.{name}"

    yield _operation(here("attn_norm"), "rms_norm", x=stream)
    yield _quantize(here("attn_in"), here("attn_norm"))
    yield _linear(here("q"), here("attn_in"))
    yield _linear(here("k"), here("attn_in"))
    yield _linear(here("v"), here("attn_in"))
    reads = {"q": here("q.out"), "k": here("k.out")}
    yield Operation(here("rope"), "rope", reads, {"q": here("q_rope"), "k": here("k_rope")})
    yield _operation(here("probs"), "softmax", q=here("q_rope"), k=here("k_rope"))
    yield _operation(here("attn_mix"), "mix", probs=here("probs"), v=here("v.out"))
    if sub_norms:
        yield _operation(here("attn_sub_norm"), "rms_norm", x=here("attn_mix"))
    yield _quantize(here("o_in"), here("attn_sub_norm" if sub_norms else "attn_mix"))
    yield _linear(here("o"), here("o_in"))
    yield _operation(here("attn_residual"), "add", a=stream, b=here("o.out"))
    yield _operation(here("ffn_norm"), "rms_norm", x=here("attn_residual"))
    yield _quantize(here("ffn_in"), here("ffn_norm"))
    yield _linear(here("gate"), here("ffn_in"))
    yield _linear(here("up"), here("ffn_in"))
    yield _operation(here("ffn_act"), "ffn_activation", gate=here("gate.out"), up=here("up.out"))
    if sub_norms:
        yield _operation(here("ffn_sub_norm"), "rms_norm", x=here("ffn_act"))
    yield _quantize(here("down_in"), here("ffn_sub_norm" if sub_norms else "ffn_act"))
    yield _linear(here("down"), here("down_in"))
    yield _operation(here("ffn_residual"), "add", a=here("attn_residual"), b=here("down.out"))


def _operation(name: str, kind: Kind, **reads: str) -> Operation:
    """An operation with one result, which bears its name."""
    return Operation(name, kind, reads, {"x": name})


def _quantize(name: str, x: str) -> Operation:
    return Operation(name, "quantize", {"x": x}, {"codes": f"{name}.codes", "scale": f"{name}.scale"})


def _linear(name: str, source: str) -> Operation:
    reads = {"codes": f"{source}.codes", "scale": f"{source}.scale"}
    return Operation(name, "bit_linear", reads, {"acc": f"{name}.acc", "out": f"{name}.out"})


def trace_names(config: GraphShape) -> list[str]:
    """Every traced name in execution order."""
    return [name for operation in operations(config) for name in operation.writes.values()]
