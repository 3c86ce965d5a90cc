"""Trits as two bit planes, two bits per weight: the only copy of a ternary matrix that the engine keeps.

One plane marks the trits that are not zero, the other those that are -1. The bits of a 32-bit word run along ``in``;
the words of neighbouring rows are adjacent along ``out``, so that a vector register holds the same word of 16 rows and
no sum crosses its lanes. Bit b of word j belongs to column b * words + j: packing and unpacking need only shifts.

    word j:  bit 0  column j     bit 1  column words + j     ...     bit 31  column 31 * words + j

``in`` is padded with zero trits to a multiple of 128, four words, because the fastest product adds at least four at a
time.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Int8, Int32, UInt32

from tritgold_xla.runtime.flags import jit
from tritgold_xla.runtime.ieee import barrier

_BITS = 32
FOLD = 4


class Planes(NamedTuple):
    """A ternary matrix: bits uint32 [2, words, out] and negatives int32 [out], as ``pack`` gives them.

    Or one of a stack, with a leading axis of layers: layer is its number, int32 []. A loop should take what it reads
    out of the stack in its body: of a matrix that is taken out before it, XLA makes a copy.
    """

    bits: jax.Array
    negatives: jax.Array
    layer: jax.Array | None = None

    def matrix(self) -> UInt32[jax.Array, "2 words out"]:
        """The planes of the whole matrix."""
        return _of_layer(self.bits, self.layer)

    def rows(self, first: jax.Array, count: int) -> UInt32[jax.Array, "2 words count"]:
        """The planes of some rows of the matrix."""
        if self.layer is None:
            return lax.dynamic_slice_in_dim(self.bits, first, count, axis=2)
        return lax.dynamic_slice(self.bits, (self.layer, 0, 0, first), (1, *self.bits.shape[1:3], count))[0]

    def row_negatives(self) -> Int32[jax.Array, " out"]:
        """The number of -1 in each row."""
        return _of_layer(self.negatives, self.layer)


def _of_layer(stack: jax.Array, layer: jax.Array | None) -> jax.Array:
    return stack if layer is None else lax.dynamic_index_in_dim(stack, layer, keepdims=False)


def words(in_: int) -> int:
    """The number of words of a plane along ``in``.

    >>> [words(n) for n in (1, 128, 129, 2560)]
    [4, 4, 8, 80]
    """
    return FOLD * -(-in_ // (_BITS * FOLD))


def pack(trits: Int8[jax.Array, "out in"]) -> tuple[UInt32[jax.Array, "2 words out"], Int32[jax.Array, " out"]]:
    """(planes, negatives): the planes "not zero" and "-1"; the number of -1 in each row. Values are not checked.

    >>> planes, negatives = pack(jnp.array([[1, 0, -1, 0, -1]], jnp.int8))  # four words, so column 4 is bit 1 of word 0
    >>> planes[:, :, 0].tolist(), negatives.tolist()
    ([[3, 0, 1, 0], [2, 0, 1, 0]], [2])
    """
    out, in_ = trits.shape
    bits = lax.bitcast_convert_type(jnp.asarray(trits), jnp.uint8)
    filled = jnp.pad(bits, ((0, 0), (0, _BITS * words(in_) - in_)))
    columns = filled.reshape(out, _BITS, words(in_))

    def plane(bits: jax.Array) -> jax.Array:
        """Byte by byte: four times as many bytes as words fit into a vector register."""
        word = jnp.zeros((out, words(in_)), jnp.uint32)
        for first in range(0, _BITS, 8):
            byte = bits[:, first]
            for bit in range(1, 8):
                byte |= bits[:, first + bit] << jnp.uint8(bit)
            word |= barrier(byte).astype(jnp.uint32) << jnp.uint32(first)
        return word.T

    # The lowest bit is set in 1 and in -1 (0xFF), the highest bit only in -1.
    nonzero, negative = columns & jnp.uint8(1), columns >> jnp.uint8(7)
    planes = barrier(jnp.stack([plane(nonzero), plane(negative)]))
    return planes, lax.population_count(planes[1]).astype(jnp.int32).sum(axis=0)


packed = jit(pack, level=2)  # as fast as level 3, and 256 columns compile in 0.3 s instead of 6


def unpack(planes: UInt32[jax.Array, "2 words out"]) -> Int8[jax.Array, "columns out"]:
    """The trits, columns first, with zeros where the matrix is padded; columns = 32 * words.

    The words are cut into their four bytes first: eight shifts then unpack a vector register of bytes, 64 rows of them,
    and no lane moves.
    """
    _, count, out = planes.shape
    nonzero, negative = barrier(
        jnp.stack([(planes >> jnp.uint32(shift)).astype(jnp.uint8) for shift in range(0, _BITS, 8)], axis=1)
    )
    one = jnp.uint8(1)
    trits = [
        ((nonzero >> bit) & one).astype(jnp.int8) - (((negative >> bit) & one) << one).astype(jnp.int8)
        for bit in map(jnp.uint8, range(8))
    ]
    return jnp.stack(trits, axis=1).reshape(_BITS * count, out)


def filled(codes: Int8[jax.Array, "tokens in"]) -> Int8[jax.Array, "tokens columns"]:
    """Activations with zeros where the matrix is padded."""
    return jnp.pad(codes, ((0, 0), (0, _BITS * words(codes.shape[1]) - codes.shape[1])))


@jax.jit  # within a program: codes of one width are traced once
def bit_planes(codes: Int8[jax.Array, " in"]) -> UInt32[jax.Array, "8 words"]:
    """The eight bits of each code, as words in the order of the weights' words; bit 7 counts negative.

    Eight codes are an 8 x 8 matrix of bits, transposed in three steps of swaps (Warren, "Hacker's Delight", 7-3),
    with a third of the operations of extracting each bit.
    """
    in_ = codes.shape[0]
    count = words(in_)
    filled = jnp.pad(codes, (0, _BITS * count - in_))
    columns = lax.bitcast_convert_type(filled, jnp.uint8).reshape(_BITS, count).astype(jnp.uint32)
    turned = [_turned(columns[first : first + 8]) for first in range(0, _BITS, 8)]
    planes = []
    for bit in range(8):
        half, shift = bit // 4, jnp.uint32(8 * (bit % 4))
        word = jnp.zeros((count,), jnp.uint32)
        for group in range(4):
            word |= ((turned[group][half] >> shift) & jnp.uint32(0xFF)) << jnp.uint32(8 * group)
        planes.append(word)
    return jnp.stack(planes)


def _turned(codes: UInt32[jax.Array, "8 words"]) -> tuple[UInt32[jax.Array, " words"], UInt32[jax.Array, " words"]]:
    """(low, high): byte b of the eight bytes holds bit b of the eight codes, the first code in its lowest bit."""

    def bytes_of(four: jax.Array) -> jax.Array:
        word = four[0]
        for index in (1, 2, 3):
            word |= four[index] << jnp.uint32(8 * index)
        return word

    def swapped(word: jax.Array, distance: int, mask: int) -> jax.Array:
        differ = (word ^ (word >> jnp.uint32(distance))) & jnp.uint32(mask)
        return word ^ differ ^ (differ << jnp.uint32(distance))

    low, high = (swapped(swapped(bytes_of(four), 7, 0x00AA00AA), 14, 0x0000CCCC) for four in (codes[:4], codes[4:]))
    differ = ((low >> jnp.uint32(4)) ^ high) & jnp.uint32(0x0F0F0F0F)
    return low ^ (differ << jnp.uint32(4)), high ^ differ
