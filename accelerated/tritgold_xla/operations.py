"""One operation of the graph at a time, on inputs from outside: how a judge finds the first one that differs.

Each runs the very function that ``model.forward`` runs when it is traced, compiled by itself. Tokens are padded up to a
bucket and keys to the cache's positions, as in the whole pass. Positions start at 0.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import numpy as np
from jax import lax

from tritgold.config import ModelConfig, ScaleRule, check_tokens
from tritgold.errors import EngineError
from tritgold.graph import Kind, Operation, Traced
from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.layers import attention, lm_head
from tritgold_xla.layers.embedding import embed
from tritgold_xla.layers.feed_forward import add, gated_activation, scaled
from tritgold_xla.layers.of_layer import of_layer, window_begins
from tritgold_xla.layers.rms_norm import norm_heads, rms_norm
from tritgold_xla.layers.rotary import rotate
from tritgold_xla.parameters import Parameters
from tritgold_xla.runtime.checks import non_finite
from tritgold_xla.runtime.chunks import bucket, crop, pad
from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul.bit_linear import PackedLinear, biased, bit_linears, quantize
from tritgold_xla.ternary_matmul.choose import Choices

Arrays = dict[str, np.ndarray]
Results = tuple[jax.Array, ...]

_select = jit(lambda stack, layer: jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, layer, keepdims=False), stack))
_embed = jit(embed)
_rms_norm = jit(rms_norm, static=("eps",))
_norm_heads = jit(norm_heads, static=("eps",))
_scaled = jit(scaled, static=("factor",))
# Over several devices a bias has padding after it.
_biased = jit(lambda out, bias: biased(out, bias[: out.shape[1]]))
_quantize = jit(quantize)
_rotate = jit(rotate)
_softmax_weights = jit(attention.softmax_weights)
_mix_values = jit(attention.mix_values)
_gated_activation = jit(gated_activation, static=("activation",))
_add = jit(add, static=("factor",))
_logits = jit(lm_head.logits)
_divided = jit(lm_head.divided, static=("divisor",))


def _one_linear(
    codes: jax.Array, scale: jax.Array, stack: PackedLinear, layer: jax.Array, rule: ScaleRule, choices: Choices
) -> tuple[jax.Array, jax.Array]:
    return bit_linears(codes, scale, {"it": stack.at(layer)}, rule, choices)["it"]


_bit_linear = jit(_one_linear, static=("rule", "choices"))


class Weighted(Protocol):
    """The operations that read what may be cut over devices."""

    def embed(self, tokens: np.ndarray) -> jax.Array:
        """The embedding rows of int32 tokens."""

    def linear(
        self, name: str, layer: np.int32, codes: np.ndarray, scale: np.ndarray, rule: ScaleRule, choices: Choices
    ) -> tuple[jax.Array, jax.Array]:
        """(accumulators, outputs) of one linear of one layer."""

    def logits(self, x: jax.Array) -> jax.Array:
        """The logits of every token."""


class OnOneDevice:
    """``Weighted`` where every array is whole."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters

    def embed(self, tokens: np.ndarray) -> jax.Array:
        """The embedding rows of int32 tokens."""
        return _embed(tokens, self._parameters.embedding)

    def linear(
        self, name: str, layer: np.int32, codes: np.ndarray, scale: np.ndarray, rule: ScaleRule, choices: Choices
    ) -> tuple[jax.Array, jax.Array]:
        """(accumulators, outputs) of one linear of one layer."""
        stack = self._parameters.layers.linears[name]
        return _bit_linear(codes, scale, stack, layer, rule=rule, choices=choices)

    def logits(self, x: jax.Array) -> jax.Array:
        """The logits of every token."""
        return _logits(x, self._parameters.head)


class Model(NamedTuple):
    """What an operation needs to know of the engine."""

    config: ModelConfig
    parameters: Parameters
    capacity: int
    choices: Choices
    weighted: Weighted


def run_operation(model: Model, operation: Operation, inputs: Arrays) -> Arrays:
    """Arrays by the roles that the operation reads in; arrays by the roles that it writes out, of the trace's types.

    Raises EngineError ``operation-inputs`` where roles, shapes or types are not the operation's, or where the cache
    has no room for so many tokens; ContextError for a token id out of range; NonFiniteError where infinity or NaN is
    to be quantised.
    """
    call = _Call(model, operation, inputs)
    results = _RUN[operation.kind](call)
    return {
        role: crop(traced, np.asarray(result), call.tokens, call.tokens)
        for (role, traced), result in zip(operation.outputs.items(), results, strict=True)
    }


class _Call:
    """One operation: its own weights, and its inputs, checked and padded along the token axis to a bucket."""

    def __init__(self, model: Model, operation: Operation, inputs: Arrays) -> None:
        self.config, self.parameters, self.capacity, self.choices, self.weighted = model
        self.operation, self.inputs = operation, {role: np.asarray(array) for role, array in inputs.items()}
        self.what = operation.at.what
        if set(inputs) != set(operation.inputs):
            raise self._wrong(sorted(inputs), sorted(operation.inputs))
        first, traced = next(iter(operation.inputs.items()))
        self.tokens = (*self.inputs[first].shape, 0, 0)[traced.token_axis]
        for role, traced in operation.inputs.items():
            self._check(role, traced)

    def _check(self, role: str, traced: Traced) -> None:
        array, wanted = self.inputs[role], traced.shape(self.config, self.tokens)
        if array.dtype != traced.dtype or array.shape != wanted or not 0 < self.tokens <= self.capacity:
            raise self._wrong(
                f"{role} {array.dtype} {list(array.shape)}",
                f"{traced.dtype} {list(wanted)}, with 1 to {self.capacity} tokens",
            )

    def _wrong(self, got: object, expected: object) -> EngineError:
        return EngineError(
            "the inputs are not those that the operation reads",
            kind="operation-inputs",
            thing=self.operation.name,
            got=got,
            expected=expected,
        )

    @property
    def count(self) -> np.int32:
        """The number of tokens, as the compiled functions take it."""
        return np.int32(self.tokens)

    @property
    def layer(self) -> np.int32:
        """The number of its layer."""
        assert self.operation.at.layer is not None
        return np.int32(self.operation.at.layer)

    def padded(self, role: str, axis: int = 0) -> np.ndarray:
        """An input with the padding of its bucket."""
        return pad(self.inputs[role], bucket(self.tokens), axis)

    def cached(self, role: str) -> np.ndarray:
        """Keys or values as ``kv_cache.read`` gives them: [kv_heads, positions, head_dim], zero after the tokens."""
        rows = self.inputs[role].reshape(self.tokens, self.config.kv_heads, self.config.head_dim)
        return pad(rows.transpose(1, 0, 2), kv_cache.positions(self.capacity), axis=1)


def _run_embedding(call: _Call) -> Results:
    check_tokens(call.inputs["tokens"], call.config)
    rows = call.weighted.embed(call.padded("tokens").astype(np.int32))
    return (_scaled(rows, factor=call.config.embedding_scale),)


def _run_rms_norm(call: _Call) -> Results:
    if call.what == "final_norm":
        gain = call.parameters.final_norm
    else:
        gain = _select(call.parameters.layers.gains[call.what], call.layer)
    norm = _norm_heads if call.what in ("q_norm", "k_norm") else _rms_norm
    return (norm(call.padded("x"), gain, eps=call.config.norm_eps),)


def _run_quantize(call: _Call) -> Results:
    codes, scale, finite = _quantize(call.padded("x"))
    if not np.asarray(finite).all():
        raise non_finite(call.operation.name)
    return codes, scale


def _run_bit_linear(call: _Call) -> Results:
    acc, out = call.weighted.linear(
        call.what, call.layer, call.padded("codes"), call.padded("scale"), call.config.scale_rule, call.choices
    )
    biases = call.parameters.layers.gains.get(f"{call.what}_bias")
    return acc, out if biases is None else _biased(out, _select(biases, call.layer))


def _run_rope(call: _Call) -> Results:
    c, tokens = call.config, bucket(call.tokens)
    tables = (of_layer(c, t, call.layer) for t in (call.parameters.sin, call.parameters.cos))
    sin, cos = (pad(np.asarray(t)[: call.tokens], tokens) for t in tables)
    q = call.padded("q").reshape(tokens, c.heads, c.head_dim)
    k = call.padded("k").reshape(tokens, c.kv_heads, c.head_dim)
    return _rotate(q, sin, cos), _rotate(k, sin, cos)


def _run_softmax(call: _Call) -> Results:
    ends = np.minimum(np.arange(bucket(call.tokens), dtype=np.int32) + 1, call.count)
    begins = window_begins(call.config, np.arange(ends.size, dtype=np.int32), call.layer)
    q = _scaled(call.padded("q"), factor=call.config.query_scale)
    return (_softmax_weights(q, call.cached("k"), ends, begins),)


def _run_mix(call: _Call) -> Results:
    weights = pad(call.padded("probs", axis=1), kv_cache.positions(call.capacity), axis=2)
    return (_mix_values(weights, call.cached("v")),)


def _run_activation(call: _Call) -> Results:
    return (_gated_activation(call.padded("gate"), call.padded("up"), activation=call.config.activation),)


def _run_add(call: _Call) -> Results:
    return (_add(call.padded("a"), call.padded("b"), factor=call.config.residual_scale),)


def _run_head(call: _Call) -> Results:
    x = _divided(call.padded("x"), divisor=call.config.logit_divisor)
    return (call.weighted.logits(x),)


_RUN: dict[Kind, Callable[[_Call], Results]] = {
    "embedding": _run_embedding,
    "rms_norm": _run_rms_norm,
    "quantize": _run_quantize,
    "bit_linear": _run_bit_linear,
    "rope": _run_rope,
    "softmax": _run_softmax,
    "mix": _run_mix,
    "ffn_activation": _run_activation,
    "add": _run_add,
    "lm_head": _run_head,
}
