"""A model's weights on the device: layers stacked, ternary matrices in bit planes, the head in two bytes a weight."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tritgold.config import ModelConfig
from tritgold.errors import NonFiniteError, WeightsError
from tritgold.ternary import DenseMatrix, LinearWeight
from tritgold.weights import LINEARS, VECTORS, ModelWeights
from tritgold_xla.layers.lm_head import CoarseHead, bfloat16_bits, make_screen, screen_columns
from tritgold_xla.layers.rotary import rotation_table
from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul import planes
from tritgold_xla.ternary_matmul.absmean import absmean
from tritgold_xla.ternary_matmul.bit_linear import PackedLinear
from tritgold_xla.ternary_matmul.kernels import Planes

_screen = jit(make_screen)
_SLICE = 1 << 20  # numbers of a dense matrix that are float32 at a time
Progress = Callable[[int, int], None]  # matrices packed, of how many


class LayerParameters(NamedTuple):
    """linears: by the names of LINEARS; gains: float32 vectors, biases too, by those of VECTORS that the model has.

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

    embedding: [vocab, hidden], bfloat16 where its numbers are that, else float32; head: the same shape, the same array
    where it is tied. sin, cos: float32 [capacity, head_dim / 2], RoPE's table, or two of them. screen: of the greedy
    head, for the program that reads it.
    """

    embedding: jax.Array
    layers: LayerParameters
    final_norm: jax.Array
    head: jax.Array
    sin: jax.Array
    cos: jax.Array
    screen: CoarseHead | None = None


def load_parameters(
    config: ModelConfig,
    weights: ModelWeights,
    capacity: int,
    device: jax.Device,
    progress: Progress | None = None,
) -> Parameters:
    """Pack and stack the weights, one matrix unpacked at a time; ``progress`` is told of each.

    Raises WeightsError where a tensor has not the shape that the configuration asks for.
    """
    if len(weights.layers) != config.layers:
        raise _shape_error("layers", [len(weights.layers)], [config.layers])
    linears = {name: _stack_linear(config, weights, name, device, progress) for name in LINEARS}
    widths = config.vector_widths()
    gains: dict[str, jax.Array] = {}
    for name in VECTORS:
        of_layers = [getattr(layer, name) for layer in weights.layers]
        if name in widths:
            stacked = np.stack([_gain(name, gain, widths[name]) for gain in of_layers])
            gains[name] = jax.device_put(stacked, device)
        elif any(gain is not None for gain in of_layers):
            raise WeightsError("is not part of this model", kind="unused-tensor", thing=name)
    embedding = _dense("embedding", weights.embedding, config, device)
    head = embedding if weights.head is None else _dense("head", weights.head, config, device)
    sin, cos = rotations(config, capacity, device)
    return Parameters(
        embedding=embedding,
        layers=LayerParameters(linears, gains),
        final_norm=jax.device_put(_gain("final_norm", weights.final_norm, config.hidden), device),
        head=head,
        sin=sin,
        cos=cos,
    )


def rotations(config: ModelConfig, capacity: int, device: jax.Device) -> tuple[jax.Array, jax.Array]:
    """sin and cos [capacity, half]; [2, capacity, half] if layers with a window have a theta of their own."""
    tables = rotation_table(capacity, config.head_dim, config.rope_theta, config.rope_scaling)
    if config.local_rope_theta is not None:
        local = rotation_table(capacity, config.head_dim, config.local_rope_theta)
        tables = np.stack([tables[0], local[0]]), np.stack([tables[1], local[1]])
    return jax.device_put(tables[0], device), jax.device_put(tables[1], device)


def parameter_bytes(config: ModelConfig) -> int:
    """About how many bytes ``load_parameters`` allocates, a head of bfloat16 assumed."""
    linears = sum(8 * planes.words(in_) * out for out, in_ in map(config.linear_shape, LINEARS)) * config.layers
    rows = config.vocab * config.hidden
    return linears + 2 * rows * (1 if config.tied_head else 2)


def screen_of(head: jax.Array, device: jax.Device) -> CoarseHead:
    """The coarse copy of the head, made a slice of rows at a time."""
    vocab, hidden = head.shape
    kinds = (((screen_columns(hidden), vocab), np.int8), *(((vocab,), np.float32),) * 3)
    made = [_aligned(shape, np.dtype(kind)) for shape, kind in kinds]
    step = max(1, _SLICE // hidden)
    for first in range(0, vocab, step):
        part = _screen(np.asarray(head[first : first + step]).astype(np.float32))
        for whole, rows in zip(made, part, strict=True):
            whole[..., first : first + step] = np.asarray(rows)
    return CoarseHead(*(jax.device_put(array, device) for array in made))


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An empty array that JAX takes over as it is: it copies what does not begin at a multiple of 64 bytes."""
    size = int(np.prod(shape)) * dtype.itemsize
    buffer = np.empty(size + 64, np.uint8)
    first = -buffer.ctypes.data % 64
    return buffer[first : first + size].view(dtype).reshape(shape)


def _stack_linear(
    config: ModelConfig, weights: ModelWeights, name: str, device: jax.Device, progress: Progress | None
) -> PackedLinear:
    """The planes [layers, 2, words, out] and scales of one linear: [layers], or [layers, out] of scales of rows."""
    out, in_ = config.linear_shape(name)
    bits = _aligned((config.layers, 2, planes.words(in_), out), np.dtype(np.uint32))
    negatives = _aligned((config.layers, out), np.dtype(np.int32))
    scales = np.empty((config.layers, out), np.float32)
    one = True
    for index, layer in enumerate(weights.layers):
        at, weight = f"layers.{index}.{name}", layer.linear(name)
        if tuple(weight.shape) != (out, in_):
            raise _shape_error(at, weight.shape, (out, in_))
        trits, scale = _trits(at, weight)
        scales[index], one = scale.reshape(-1), one and scale.ndim == 0
        for stacked, packed in zip((bits, negatives), planes.packed(trits), strict=True):
            stacked[index] = np.asarray(packed)
        if progress is not None:
            progress(LINEARS.index(name) * config.layers + index + 1, len(LINEARS) * config.layers)
    return PackedLinear(
        Planes(jax.device_put(bits, device), jax.device_put(negatives, device)),
        jax.device_put(scales[:, 0] if one else scales, device),
    )


def _trits(at: str, weight: LinearWeight) -> tuple[np.ndarray, np.ndarray]:
    """The trits and their scale, [] or [out, 1]; of an online checkpoint by this engine's own quantiser."""
    if weight.master is not None:
        try:
            trits, scale = absmean(weight.master)
        except NonFiniteError as error:
            raise error.located(thing=at) from None
        return trits, np.asarray(scale)
    tensor = weight.ternary().with_scales_of_rows()
    return tensor.trits, tensor.scale


def _gain(name: str, gain: np.ndarray | None, width: int) -> np.ndarray:
    if gain is None or gain.shape != (width,):
        raise _shape_error(name, None if gain is None else gain.shape, [width])
    return np.asarray(gain, np.float32)


def _dense(name: str, matrix: DenseMatrix, config: ModelConfig, device: jax.Device) -> jax.Array:
    """The matrix, bfloat16 if every number of it is one, else float32; a slice of rows is float32 at a time."""
    shape = config.vocab, config.hidden
    if tuple(matrix.shape) != shape:
        raise _shape_error(name, matrix.shape, list(shape))
    step = max(1, _SLICE // config.hidden)
    slices = [slice(first, min(first + step, config.vocab)) for first in range(0, config.vocab, step)]
    rows = _narrow(matrix, slices)
    if rows is None:
        rows = _aligned(shape, np.dtype(np.float32))
        for part in slices:
            rows[part] = matrix.rows(part)
    return jax.device_put(rows, device)


def _narrow(matrix: DenseMatrix, slices: list[slice]) -> np.ndarray | None:
    """The matrix in bfloat16, or None as soon as a number is none."""
    rows = _aligned((matrix.shape[0], matrix.shape[1]), np.dtype(np.uint16))
    for part in slices:
        bits = bfloat16_bits(matrix.rows(part))
        if bits is None:
            return None
        rows[part] = bits
    return rows.view(jnp.bfloat16)


def _shape_error(thing: str, got: object, expected: object) -> WeightsError:
    found = "nothing" if got is None else list(got) if isinstance(got, tuple) else got
    wanted = list(expected) if isinstance(expected, tuple) else expected
    return WeightsError("does not fit the configuration", kind="shape", thing=thing, got=found, expected=wanted)
