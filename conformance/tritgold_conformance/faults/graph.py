"""Faults of the graph: another activation, a norm left out, a residual lost, a head that is none.

Biases that are ignored are none of them: no model of these families has any, and one that brings a bias is refused when
it is loaded.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tritgold.portable_math import dot, exp
from tritgold.quantize import absmean_ternary
from tritgold.ternary import DenseMatrix
from tritgold.weights import LayerWeights
from tritgold_conformance.faults.fault import (
    Change,
    Fault,
    Subject,
    Witness,
    arithmetic_of,
    config,
    output,
    with_checkpoint,
    with_weights,
)

Seen = Mapping[str, np.ndarray]


def _gate(function: Callable[[np.ndarray], np.ndarray], unless: str = "") -> Change:
    def make(s: Subject) -> dict[str, object] | None:
        if s.config.activation == unless:
            return None

        def gated_activation(gate: np.ndarray, up: np.ndarray, activation: str) -> np.ndarray:
            return (function(gate.astype(np.float64)) * up).astype(np.float32)

        return {"gated_activation": gated_activation}

    return arithmetic_of(make)


def _silu(g: np.ndarray) -> np.ndarray:
    return g / (1.0 + exp(-g))


def _gelu(g: np.ndarray) -> np.ndarray:
    """The tanh form."""
    inner = math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)
    return 0.5 * g * (1 + np.tanh(inner))


def _relu2(g: np.ndarray) -> np.ndarray:
    return np.square(np.maximum(g, 0.0))


def _overflowing(s: Subject) -> dict[str, object]:
    def gated_activation(gate: np.ndarray, up: np.ndarray, activation: str) -> np.ndarray:
        exact = s.arithmetic.gated_activation(gate, up, activation)
        return np.where(np.abs(exact) >= 65520, np.copysign(np.float32(np.inf), exact), exact).astype(np.float32)

    return {"gated_activation": gated_activation}


def _layers(change: Callable[[LayerWeights], dict[str, object]]) -> Change:
    def faulty(s: Subject) -> Subject:
        layers = [replace(layer, **change(layer)) for layer in s.checkpoint.weights.layers]  # type: ignore[arg-type]
        return with_weights(s, layers=tuple(layers))

    return faulty


def _reordered(order: Callable[[int], list[int]]) -> Change:
    def faulty(s: Subject) -> Subject | None:
        layers = s.checkpoint.weights.layers
        indices = order(len(layers))
        if indices == list(range(len(layers))):
            return None
        return with_weights(s, layers=tuple(layers[i] for i in indices))

    return faulty


def _lexical(count: int) -> list[int]:
    """0, 1, 10, 11, 2 ...: the order of the names.

    >>> _lexical(12)[:4]
    [0, 1, 10, 11]
    """
    return sorted(range(count), key=str)


def _beside(name: str, other: str) -> str:
    """``layers.3.o.out`` -> ``layers.3.attn_mix``."""
    return ".".join([*name.split(".")[:2], other])


def _instead(ending: str, source: str) -> Change:
    """An output replaced by one that came before it in its layer."""

    def make(s: Subject) -> Callable[[str, np.ndarray, Seen], np.ndarray | None] | None:
        if ending.endswith("sub_norm") and not s.config.sub_norms:
            return None

        def alter(name: str, value: np.ndarray, seen: Seen) -> np.ndarray | None:
            return seen.get(_beside(name, source)) if name.endswith("." + ending) else None

        return alter

    return output(make)


def _sub_norm_behind(norm: str, source: str, projection: str) -> Change:
    """The sub-norm's gain is used on what the projection gives, where the widths allow it."""

    def make(s: Subject) -> Callable[[str, np.ndarray, Seen], np.ndarray | None] | None:
        layers = s.checkpoint.weights.layers
        if not s.config.sub_norms or s.config.q_width != s.config.hidden:
            return None

        def alter(name: str, value: np.ndarray, seen: Seen) -> np.ndarray | None:
            if name.endswith("." + norm):
                return seen.get(_beside(name, source))
            if name.endswith(f".{projection}.out"):
                gain = getattr(layers[int(name.split(".")[1])], norm)
                return s.arithmetic.rms_norm(value, gain, s.config.norm_eps)
            return None

        return alter

    return output(make)


def _residual_behind_the_norm(s: Subject) -> dict[str, object]:
    """What is added to is the norm's output; the addition only sees the stream, so the norm remembers."""
    normed: dict[bytes, np.ndarray] = {}

    def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
        normed[x.tobytes()] = found = s.arithmetic.rms_norm(x, gain, eps)
        return found

    before = s.arithmetic.alter

    def alter(name: str, value: np.ndarray, seen: Seen) -> np.ndarray:
        if before is not None:
            value = before(name, value, seen)
        part = {"attn_residual": "o.out", "ffn_residual": "down.out"}.get(name.rpartition(".")[2])
        if part is None:
            return value
        delta = seen[_beside(name, part)]
        stream = seen.get(_stream(name), np.zeros(0, np.float32))
        found = normed.get(stream.tobytes())
        return value if found is None else found + delta

    return {"rms_norm": rms_norm, "alter": alter}


def _stream(name: str) -> str:
    """The residual stream that an addition reads."""
    _, layer, what = name.split(".")
    if what == "ffn_residual":
        return _beside(name, "attn_residual")
    return "embedding" if layer == "0" else f"layers.{int(layer) - 1}.ffn_residual"


def _norm(function: Callable[[np.ndarray, np.ndarray, float], np.ndarray]) -> Change:
    return arithmetic_of(lambda s: {"rms_norm": function})


def _layer_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    centred = x.astype(np.float64) - x.mean(axis=1, dtype=np.float64, keepdims=True)
    return (centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + eps) * gain).astype(np.float32)


def _root_of_sum(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    return (x / np.sqrt(dot(x, x) + eps)[:, None] * gain).astype(np.float32)


def _eps_behind_the_root(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    return (x / (np.sqrt(dot(x, x) / x.shape[1])[:, None] + eps) * gain).astype(np.float32)


def _gains(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    def make(s: Subject) -> dict[str, object]:
        def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
            return s.arithmetic.rms_norm(x, change(gain), eps)

        return {"rms_norm": rms_norm}

    return arithmetic_of(make)


def _other_eps(width_of: Callable[[Subject], bool], eps: float) -> Change:
    def make(s: Subject) -> dict[str, object] | None:
        if not width_of(s):
            return None
        gains = {
            id(gain) for layer in s.checkpoint.weights.layers for gain in (layer.attn_sub_norm, layer.ffn_sub_norm)
        }

        def rms_norm(x: np.ndarray, gain: np.ndarray, right: float) -> np.ndarray:
            return s.arithmetic.rms_norm(x, gain, eps if id(gain) in gains else right)

        return {"rms_norm": rms_norm}

    return arithmetic_of(make)


def _head(make: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Another matrix in the head's place, made of its rows."""

    class _Rows:
        def __init__(self, source: DenseMatrix) -> None:
            self._rows = make(source.rows(slice(None)))
            self.shape = self._rows.shape

        def rows(self, index: slice | np.ndarray) -> np.ndarray:
            return self._rows[index]

    def faulty(s: Subject) -> Subject:
        made = with_weights(s, head=_Rows(s.checkpoint.weights.head_or_embedding))
        return with_checkpoint(made, config=replace(s.config, tied_head=False))

    return faulty


def _embedding(change: Callable[[Subject, np.ndarray, np.ndarray], np.ndarray]) -> Change:
    """change(subject, ids, rows)."""

    def make(s: Subject) -> dict[str, object]:
        def embed(tokens: np.ndarray, embedding: DenseMatrix) -> np.ndarray:
            return change(s, tokens, s.arithmetic.embed(tokens, embedding))

        return {"embed": embed}

    return arithmetic_of(make)


def _next_row(s: Subject) -> dict[str, object]:
    return {"embed": lambda tokens, embedding: s.arithmetic.embed((tokens + 1) % s.config.vocab, embedding)}


def _without_final_norm(s: Subject) -> Callable[[str, np.ndarray, Seen], np.ndarray | None]:
    last = f"layers.{s.config.layers - 1}.ffn_residual"
    return lambda name, value, seen: seen.get(last) if name == "final_norm" else None


def _scaled(s: Subject, _: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return (rows * np.float32(math.sqrt(s.config.hidden))).astype(np.float32)


_OPERATIONS, _VECTORS = Witness("operations"), Witness("vectors")

FAULTS = (
    Fault(
        "silu", "graph", "SiLU where the model has squared ReLU.",
        "fluent and wrong: perplexity 100 for 17, the same on every backend",
        _gate(_silu, unless="silu"), _OPERATIONS, ("microsoft/BitNet #588, #602", "ggml-org/llama.cpp #25885"),
    ),
    Fault(
        "gelu", "graph", "GELU in the gate.", "fluent and wrong", _gate(_gelu), _OPERATIONS,
    ),
    Fault(
        "relu", "graph", "ReLU in the gate, not squared.", "fluent and wrong; as many zeros as there should be",
        _gate(lambda g: np.maximum(g, 0.0)), _OPERATIONS,
    ),
    Fault(
        "relu2", "graph", "Squared ReLU where the model has SiLU.", "half of the FFN is zero",
        _gate(_relu2, unless="relu2"), Witness("operations", "llama"),
    ),
    Fault(
        "squared-without-relu", "graph", "The gate is squared and its sign is lost.", "no zeros in ffn_act",
        _gate(np.square), _OPERATIONS,
    ),
    Fault(
        "ffn-act-overflows-f16", "graph", "The product of the squared gate and up is float16.",
        "inf, then NaN, from the first layer with a large gate on",
        arithmetic_of(_overflowing), _VECTORS, ("lablup/mlxcel #287",), ("small-gates",),
    ),
    Fault(
        "gate-and-up-swapped", "graph", "gate and up are each other's matrix.", "babble",
        _layers(lambda w: {"gate": w.up, "up": w.gate}), _OPERATIONS,
    ),
    Fault(
        "attn-sub-norm-skipped", "graph", "The norm before o is left out.", "codes of o_in as if by another scale",
        _instead("attn_sub_norm", "attn_mix"), _OPERATIONS,
    ),
    Fault(
        "ffn-sub-norm-skipped", "graph", "The norm before down is left out.", "codes of down_in without its gains",
        _instead("ffn_sub_norm", "ffn_act"), _OPERATIONS,
    ),
    Fault(
        "attn-sub-norm-behind-o", "graph", "The norm before o is applied to what o gives.",
        "every layer adds a vector of the same size",
        _sub_norm_behind("attn_sub_norm", "attn_mix", "o"), _OPERATIONS,
    ),
    Fault(
        "sub-norm-gains-swapped", "graph", "attn_norm and ffn_norm are each other's.", "babble",
        _layers(lambda w: {"attn_norm": w.ffn_norm, "ffn_norm": w.attn_norm}), _OPERATIONS,
    ),
    Fault(
        "norm-eps-1e-6", "graph", "Every norm has an eps of 1e-6.", "off by a few units in the last place",
        config(norm_eps=1e-6), _OPERATIONS,
    ),
    Fault(
        "norm-eps-1e-3", "graph", "Every norm has an eps of 1e-3.", "small tokens come out smaller",
        config(norm_eps=1e-3), _OPERATIONS,
    ),
    Fault(
        "sub-norm-eps-1e-2", "graph", "The sub-norms have an eps of their own, 1e-2.",
        "tokens with little attention output come out smaller",
        _other_eps(lambda s: s.config.sub_norms, 1e-2), _OPERATIONS,
    ),
    Fault(
        "norm-eps-behind-the-root", "graph", "eps is added to the root, not to the mean square.",
        "off by a few units in the last place where tokens are small",
        _norm(_eps_behind_the_root), _OPERATIONS,
    ),
    Fault(
        "norm-gain-plus-one", "graph", "Norm gains are taken as 1 + w.", "activations too large in every layer",
        _gains(lambda gain: 1 + gain), _OPERATIONS,
    ),
    Fault(
        "norm-gain-ignored", "graph", "Norms have no gain.", "babble, of the right size", _gains(np.ones_like),
        _OPERATIONS,
    ),
    Fault(
        "layer-norm", "graph", "The mean is subtracted: LayerNorm for RMSNorm.", "off by little where means are small",
        _norm(_layer_norm), _OPERATIONS,
    ),
    Fault(
        "norm-of-the-sum", "graph", "The root of the sum of squares, not of their mean.",
        "every norm output is too small by the root of its width",
        _norm(_root_of_sum), _OPERATIONS,
    ),
    Fault(
        "attn-residual-dropped", "graph", "Attention's output replaces the stream.", "babble",
        _instead("attn_residual", "o.out"), _OPERATIONS,
    ),
    Fault(
        "ffn-residual-dropped", "graph", "The FFN's output replaces the stream.", "babble",
        _instead("ffn_residual", "down.out"), _OPERATIONS,
    ),
    Fault(
        "residual-behind-the-norm", "graph", "What is added to is the norm's output.",
        "the stream stops growing from layer to layer",
        arithmetic_of(_residual_behind_the_norm), Witness("trace"),
    ),
    Fault(
        "head-left-empty", "graph", "A tied head is taken for an untied one that is not there: zeros.",
        "all logits are zero, the first token for ever",
        _head(np.zeros_like), _OPERATIONS, ("sgl-project/sglang #1508", "vllm-project/vllm #53019"),
    ),
    Fault(
        "head-ternarised", "graph", "The head is quantised like every other linear.", "logits roughly right",
        _head(lambda rows: absmean_ternary(rows).dense()), _OPERATIONS,
    ),
    Fault(
        "head-before-final-norm", "graph", "Logits are made of the stream, without the final norm.",
        "the likeliest tokens right, their probabilities not",
        output(_without_final_norm), Witness("trace"),
    ),
    Fault(
        "embedding-scaled", "graph", "The embedding is multiplied by the root of hidden.", "babble from layer 0 on",
        _embedding(_scaled), _OPERATIONS,
    ),
    Fault(
        "embedding-of-the-next-id", "graph", "Row id + 1 of the embedding: a special token was counted twice.",
        "babble; the embedding of each token is another token's",
        arithmetic_of(_next_row), _OPERATIONS,
    ),
    Fault(
        "layers-reversed", "graph", "Layers run from the last to the first.", "babble",
        _reordered(lambda n: list(range(n))[::-1]), _OPERATIONS,
    ),
    Fault(
        "layers-in-order-of-name", "graph", "Layers run in the order of their names: 1, 10, 11, 2.",
        "models of up to 10 layers are right",
        _reordered(_lexical), Witness("operations", "deep"), (), ("11-layers",),
    ),
)  # fmt: skip
