"""A model's weights on the device: layers stacked, ternary matrices in bit planes, the head in two bytes a weight."""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tritgold.config import ModelConfig
from tritgold.errors import WeightsError
from tritgold.ternary import DenseMatrix
from tritgold.weights import LINEARS, VECTORS, ModelWeights
from tritgold_xla.kv_cache.base import positions
from tritgold_xla.layers.lm_head import CoarseHead, bfloat16_bits, make_screen, screen_columns
from tritgold_xla.layers.rotary import rotation_table
from tritgold_xla.place import Part, Place, aligned
from tritgold_xla.runtime.flags import jit
from tritgold_xla.stacked_linear import stacked_linear
from tritgold_xla.ternary_matmul import planes
from tritgold_xla.ternary_matmul.bit_linear import PackedLinear

_screen = jit(make_screen)
_SLICE = 1 << 20  # numbers of a dense matrix that are float32 at a time
Progress = Callable[[int, int], None]  # matrices packed, of how many


class LayerParameters(NamedTuple):
    """linears: by the names of LINEARS. gains: float32 vectors, biases too, by the names of VECTORS.

    ``Parameters.layers`` holds all layers in one of these, each array with a leading axis ``layers``.
    """

    linears: dict[str, PackedLinear]
    gains: dict[str, jax.Array]

    def at(self, layer: jax.Array) -> "LayerParameters":
        """One layer of the stack; its number need not be known when the program is compiled."""
        gains = {name: lax.dynamic_index_in_dim(a, layer, keepdims=False) for name, a in self.gains.items()}
        return LayerParameters({name: linear.at(layer) for name, linear in self.linears.items()}, gains)


class Parameters(NamedTuple):
    """All arrays of a model.

    embedding: [vocab, hidden], bfloat16 if all its numbers are, else float32; head: the same shape, the same array if
    it is tied. sin, cos: float32 [positions, head_dim / 2], RoPE's table, or two of them. screen: the coarse copy of
    the head, only for the program that reads it.
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
    place: Place,
    progress: Progress | None = None,
) -> Parameters:
    """Pack and stack the weights, a piece of a matrix unpacked at a time. progress: called after each matrix.

    Raises WeightsError if a tensor does not have the shape of the configuration, or is not part of the model.
    """
    if len(weights.layers) != config.layers:
        raise _shape_error("layers", [len(weights.layers)], [config.layers])
    packed = _counted(progress, len(LINEARS) * config.layers)
    linears = {
        name: stacked_linear(
            name, [layer.linear(name) for layer in weights.layers], config.linear_shape(name), place, packed
        )
        for name in LINEARS
    }
    widths = config.vector_widths()
    gains: dict[str, jax.Array] = {}
    for name in VECTORS:
        of_layers = [getattr(layer, name) for layer in weights.layers]
        if name in widths:
            stacked = np.stack([_gain(name, gain, widths[name]) for gain in of_layers])
            parts = [part.vectors(stacked) for part in place.parts(name, (widths[name], 1))]
            gains[name] = place.put(name, parts, out=1, in_=None)
        elif any(gain is not None for gain in of_layers):
            raise WeightsError("is not part of this model", kind="unused-tensor", thing=name)
    if weights.head is None:
        embedding = head = _dense("embedding", "head", weights.embedding, config, place)
    else:
        embedding = _dense("embedding", "embedding", weights.embedding, config, place)
        head = _dense("head", "head", weights.head, config, place)
    sin, cos = rotations(config, capacity, place)
    return Parameters(
        embedding=embedding,
        layers=LayerParameters(linears, gains),
        final_norm=place.copied("final_norm", _gain("final_norm", weights.final_norm, config.hidden)),
        head=head,
        sin=sin,
        cos=cos,
    )


def rotations(config: ModelConfig, capacity: int, place: Place) -> tuple[jax.Array, jax.Array]:
    """sin and cos [positions, half]; [2, positions, half] if layers with a window have another theta.

    As many positions as the cache allocates for the capacity: engines that differ in less share their programs.
    """
    rows = positions(capacity)
    tables = rotation_table(rows, config.head_dim, config.rope_theta, config.rope_scaling)
    if config.local_rope_theta is not None:
        local = rotation_table(rows, config.head_dim, config.local_rope_theta)
        tables = np.stack([tables[0], local[0]]), np.stack([tables[1], local[1]])
    return place.copied("sin", tables[0]), place.copied("cos", tables[1])


def parameter_bytes(config: ModelConfig) -> int:
    """The approximate number of bytes that ``load_parameters`` allocates, if the head is bfloat16."""
    linears = sum(8 * planes.words(in_) * out for out, in_ in map(config.linear_shape, LINEARS)) * config.layers
    rows = config.vocab * config.hidden
    return linears + 2 * rows * (1 if config.tied_head else 2)


def screen_of(head: jax.Array, device: jax.Device) -> CoarseHead:
    """The coarse copy of the head, made a slice of rows at a time."""
    vocab, hidden = head.shape
    kinds = (((screen_columns(hidden), vocab), np.int8), *(((vocab,), np.float32),) * 3)
    made = [aligned(shape, np.dtype(kind)) for shape, kind in kinds]
    step = max(1, _SLICE // hidden)
    for first in range(0, vocab, step):
        part = _screen(np.asarray(head[first : first + step]).astype(np.float32))
        for whole, rows in zip(made, part, strict=True):
            whole[..., first : first + step] = np.asarray(rows)
    return CoarseHead(*(jax.device_put(array, device) for array in made))


def _counted(progress: Progress | None, total: int) -> Callable[[], None]:
    """Calls ``progress`` with how many matrices are packed, each time it is called."""
    done = itertools.count(1)
    return lambda: None if progress is None else progress(next(done), total)


def _gain(name: str, gain: np.ndarray | None, width: int) -> np.ndarray:
    if gain is None or gain.shape != (width,):
        raise _shape_error(name, None if gain is None else gain.shape, [width])
    return np.asarray(gain, np.float32)


def _dense(name: str, role: str, matrix: DenseMatrix, config: ModelConfig, place: Place) -> jax.Array:
    """The matrix, bfloat16 if every number of it is one, else float32; only a slice of rows is float32 at a time.

    name: in an error. role: ``head`` or ``embedding``. A float32 head is not cut, because XLA's product with it depends
    on the number of rows.
    """
    shape = config.vocab, config.hidden
    if tuple(matrix.shape) != shape:
        raise _shape_error(name, matrix.shape, list(shape))
    narrow = [_narrow(matrix, part) for part in place.parts(role, shape)]
    if place.agreed(all(rows is not None for rows in narrow)):
        return place.put(role, [rows for rows in narrow if rows is not None], out=0, in_=None)
    cut = role != "head"
    return place.put(role, [_wide(matrix, part) for part in place.parts(role, shape, cut)], out=0, in_=None, cut=cut)


def _slices(part: Part) -> Iterator[tuple[slice, slice]]:
    """(rows of the matrix, the same rows in the part), about _SLICE numbers at a time."""
    first, step = part.rows.start, max(1, _SLICE // part.shape[1])
    for start in range(first, part.rows.stop, step):
        stop = min(start + step, part.rows.stop)
        yield slice(start, stop), slice(start - first, stop - first)


def _wide(matrix: DenseMatrix, part: Part) -> np.ndarray:
    """The part in float32."""
    rows = aligned(part.shape, np.dtype(np.float32))
    rows[part.rows.stop - part.rows.start :] = 0
    for there, here in _slices(part):
        rows[here] = matrix.rows(there)
    return rows


def _narrow(matrix: DenseMatrix, part: Part) -> np.ndarray | None:
    """The part in bfloat16; None if a number is not a bfloat16."""
    rows = aligned(part.shape, np.dtype(np.uint16))
    rows[part.rows.stop - part.rows.start :] = 0
    for there, here in _slices(part):
        bits = bfloat16_bits(matrix.rows(there))
        if bits is None:
            return None
        rows[here] = bits
    return rows.view(jnp.bfloat16)


def _shape_error(thing: str, got: object, expected: object) -> WeightsError:
    found = "nothing" if got is None else list(got) if isinstance(got, tuple) else got
    wanted = list(expected) if isinstance(expected, tuple) else expected
    return WeightsError("does not fit the configuration", kind="shape", thing=thing, got=found, expected=wanted)
