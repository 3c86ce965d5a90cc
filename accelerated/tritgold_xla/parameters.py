"""A model's weights on the device: the layers stacked, ternary matrices packed, everything else float32."""

from typing import NamedTuple

import jax
import numpy as np
from jax import lax

from tritgold.config import ModelConfig
from tritgold.errors import NonFiniteError, WeightsError
from tritgold.ternary import DenseMatrix, LinearWeight
from tritgold.weights import LINEARS, NORMS, ModelWeights
from tritgold_xla.absmean import absmean
from tritgold_xla.bit_linear import PackedLinear
from tritgold_xla.layers import rotation_table
from tritgold_xla.packed import pack


class LayerParameters(NamedTuple):
    """linears: by the names of LINEARS; gains: float32 vectors by those names of NORMS that the model has.

    ``Parameters.layers`` holds all layers in one of these, each array with a leading axis ``layers``.
    """

    linears: dict[str, PackedLinear]
    gains: dict[str, jax.Array]

    def at(self, layer: jax.Array) -> "LayerParameters":
        """One layer of the stack; its number need not be known when the program is compiled."""
        selected: LayerParameters = jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, layer, keepdims=False), self)
        return selected


class Parameters(NamedTuple):
    """All arrays of a model.

    embedding: float32 [vocab, hidden]; head: the same shape, the same array where it is tied. sin, cos: float32
    [capacity, head_dim / 2], RoPE's table.
    """

    embedding: jax.Array
    layers: LayerParameters
    final_norm: jax.Array
    head: jax.Array
    sin: jax.Array
    cos: jax.Array


def load_parameters(config: ModelConfig, weights: ModelWeights, capacity: int, device: jax.Device) -> Parameters:
    """Pack and stack the weights, one matrix unpacked at a time.

    Raises WeightsError where a tensor has not the shape that the configuration asks for.
    """
    if len(weights.layers) != config.layers:
        raise _shape_error("layers", [len(weights.layers)], [config.layers])
    linears = {name: _stack_linear(config, weights, name, device) for name in LINEARS}
    widths = config.norm_widths()
    gains: dict[str, jax.Array] = {}
    for name in NORMS:
        of_layers = [getattr(layer, name) for layer in weights.layers]
        if name in widths:
            stacked = np.stack([_gain(name, gain, widths[name]) for gain in of_layers])
            gains[name] = jax.device_put(stacked, device)
        elif any(gain is not None for gain in of_layers):
            raise WeightsError("is not part of this model", kind="unused-tensor", thing=name)
    embedding = _dense("embedding", weights.embedding, config, device)
    sin, cos = rotation_table(capacity, config.head_dim, config.rope_theta)
    return Parameters(
        embedding=embedding,
        layers=LayerParameters(linears, gains),
        final_norm=jax.device_put(_gain("final_norm", weights.final_norm, config.hidden), device),
        head=embedding if weights.head is None else _dense("head", weights.head, config, device),
        sin=jax.device_put(sin, device),
        cos=jax.device_put(cos, device),
    )


def _stack_linear(config: ModelConfig, weights: ModelWeights, name: str, device: jax.Device) -> PackedLinear:
    """The planes [layers, out, bytes] and scales [layers] of one linear."""
    planes: list[np.ndarray] = []
    scales: list[np.float32] = []
    for index, layer in enumerate(weights.layers):
        at, weight = f"layers.{index}.{name}", layer.linear(name)
        if tuple(weight.shape) != config.linear_shape(name):
            raise _shape_error(at, weight.shape, config.linear_shape(name))
        trits, scale = _trits(at, weight)
        planes.append(pack(trits))
        scales.append(scale)
    return PackedLinear(jax.device_put(np.stack(planes), device), jax.device_put(np.array(scales, np.float32), device))


def _trits(at: str, weight: LinearWeight) -> tuple[np.ndarray, np.float32]:
    """The trits and their scale; of an online checkpoint by this engine's own quantiser."""
    if weight.master is not None:
        try:
            return absmean(weight.master)
        except NonFiniteError as error:
            raise error.located(thing=at) from None
    tensor = weight.ternary().with_one_scale()
    return tensor.trits, np.float32(tensor.scale)


def _gain(name: str, gain: np.ndarray | None, width: int) -> np.ndarray:
    if gain is None or gain.shape != (width,):
        raise _shape_error(name, None if gain is None else gain.shape, [width])
    return np.asarray(gain, np.float32)


def _dense(name: str, matrix: DenseMatrix, config: ModelConfig, device: jax.Device) -> jax.Array:
    if tuple(matrix.shape) != (config.vocab, config.hidden):
        raise _shape_error(name, matrix.shape, [config.vocab, config.hidden])
    return jax.device_put(np.ascontiguousarray(matrix.rows(slice(0, config.vocab)), np.float32), device)


def _shape_error(thing: str, got: object, expected: object) -> WeightsError:
    found = "nothing" if got is None else list(got) if isinstance(got, tuple) else got
    wanted = list(expected) if isinstance(expected, tuple) else expected
    return WeightsError("does not fit the configuration", kind="shape", thing=thing, got=found, expected=wanted)
