"""Formulations of the product of int8 codes and trits. All give the same integers; they differ only in speed.

Each takes codes int8 [tokens, in] and a matrix in bit planes, and gives the exact int32 [tokens, out]. First it
prepares the codes, once for all matrices that multiply the same codes. Which one is fastest depends on the number of
tokens, the processor and the version of JAX: see ``choose``, and measure with ``tritgold bench --rows gemv,gemm``.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Int8, Int16, Int32, Shaped, UInt32

from tritgold_xla.runtime.flags import threads
from tritgold_xla.runtime.ieee import barrier
from tritgold_xla.ternary_matmul.planes import Planes, bit_planes, filled, unpack

Codes = Int8[jax.Array, "tokens in"]
Sums = Int32[jax.Array, "tokens out"]
# The codes as bits: uint32 [tokens, 8, words]; or as numbers, for all columns of unpacked weights.
Bits = UInt32[jax.Array, "tokens 8 words"]
Filled = Shaped[jax.Array, "tokens columns"]
# Rows that a thread unpacks at a time: of 6,912 columns 0.9 MB of int8, which stay in a core's own cache. Several
# threads wait for each other twice a tile, so they get more rows each (measured with two: 2,560 rows are then four
# tiles of 640), but no tile is larger than it is for four.
ALONE, SHARED, _SHARING = 128, 320, 4
# Tokens up to which bits are counted without a loop over them: XLA runs such a loop on one thread (measured: 8 tokens
# with two threads 1.54 ms instead of 2.35). And how many of them in one operation, which reads the matrix once.
_WRITTEN_OUT, _TOGETHER = 8, 4
# Words that one fusion adds: the first of these that divides the words of a row. More are not vectorised. Their sum
# fits into int16: at most 6 words of 32 codes of magnitude 128, and a constant of at most 192.
_FOLDS = (6, 5, 4)


class Formulation(NamedTuple):
    """One formulation. why: why and where it is fast. prepare: of the codes. multiply: prepared codes and a matrix."""

    name: str
    why: str
    prepare: Callable[[jax.Array], jax.Array]
    multiply: Callable[[jax.Array, Planes], jax.Array]

    def accumulate(self, codes: Codes, weight: Planes) -> Sums:
        """prepare and multiply."""
        return self.multiply(self.prepare(codes), weight)


def _bits(codes: Codes) -> Bits:
    """Bit planes of the codes. Without the barrier they would be computed again for every row of the matrix."""
    planes = bit_planes(codes[0])[None] if codes.shape[0] == 1 else jax.vmap(bit_planes)(codes)
    return barrier(planes)


def _select(bits: Bits, weight: Planes) -> Sums:
    """One population count per word and bit, where the difference of two planes needs two.

    For the bits x of one plane of the codes, form a word with the bit of P (trit is +1) where x is set and the bit of N
    (trit is -1) where it is not. Its population count is |P & x| + |N & ~x| = |P & x| - |N & x| + |N|: the needed
    difference and a constant of the row. With P = M ^ N (M: not zero) that word is N ^ (M & x), one ternary logic
    instruction. Over the eight bits the constants sum to |N| * (1 + 2 + ... + 64 - 128) = -|N|.
    """
    return _counted(_selected, bits, weight) + weight.row_negatives()


def _selected(nonzero: jax.Array, negative: jax.Array, x: jax.Array) -> jax.Array:
    return lax.population_count(negative ^ (nonzero & x))


def _bit_serial(bits: Bits, weight: Planes) -> Sums:
    return _counted(_difference, bits, weight)


def _difference(nonzero: jax.Array, negative: jax.Array, x: jax.Array) -> jax.Array:
    return lax.population_count((nonzero ^ negative) & x) - lax.population_count(negative & x)


_Word = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _counted(word: _Word, bits: Bits, weight: Planes) -> Sums:
    if bits.shape[0] <= _WRITTEN_OUT:
        some = [bits[first : first + _TOGETHER] for first in range(0, bits.shape[0], _TOGETHER)]
        return jnp.concatenate([_bit_serial_sums(word, rows, weight.matrix()) for rows in some])

    def one(row: jax.Array) -> jax.Array:
        row, layer = barrier((row, weight.layer))  # else the compiler takes the matrix out of the stack before the loop
        return _bit_serial_sums(word, row[None], weight._replace(layer=layer).matrix())[0]

    return lax.map(one, bits)


def _bit_serial_sums(word: _Word, bits: Bits, weight: UInt32[jax.Array, "2 words out"]) -> Sums:
    """Sum of +-2^b * ``word`` over the bits b and over the words, for each token. The barrier is not in what is mapped,
    because JAX 0.4.36 cannot map it.
    """
    if bits.shape[0] == 1:
        return _added([row.astype(jnp.int32) for row in barrier(_partial_sums(word, bits[0], weight))])[None]
    parts = barrier(jax.vmap(_partial_sums, in_axes=(None, 0, None))(word, bits, weight))
    return _added([parts[:, row].astype(jnp.int32) for row in range(parts.shape[1])])


@partial(jax.jit, static_argnums=0)  # within a program: matrices of one shape are traced once
def _partial_sums(
    word: _Word, bits: UInt32[jax.Array, "8 words"], weight: UInt32[jax.Array, "2 words out"]
) -> Int16[jax.Array, "parts out"]:
    """Sums over a few words each: a longer fold in one fusion is not vectorised, and a reduction over all words would
    become a window that materialises all of them. They are int16, because they are written to memory and read
    again, next to a matrix that is hardly larger.
    """
    _, count, out = weight.shape
    fold = next(words for words in _FOLDS if count % words == 0)
    x = bits.reshape(8, count // fold, fold)
    nonzero, negative = weight.reshape(2, count // fold, fold, out)
    total: jax.Array | None = None
    for bit in (7, 6, 5, 4, 3, 2, 1, 0):
        counts = word(nonzero[:, 0], negative[:, 0], x[bit, :, 0, None])
        for nth in range(1, fold):
            counts += word(nonzero[:, nth], negative[:, nth], x[bit, :, nth, None])
        signed = lax.bitcast_convert_type(counts, jnp.int32)
        total = -signed if total is None else 2 * total + signed
    assert total is not None
    return total.astype(jnp.int16)


def _added(rows: list[jax.Array]) -> jax.Array:
    """The sum of the rows as explicit additions: they become one fusion, vectorised along the rows."""
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total


def _filled(codes: Codes) -> Filled:
    return barrier(filled(codes))


def _int8_dot(x: Filled, weight: Planes) -> Sums:
    tokens = x.shape[0]
    if tokens == 1:  # XLA makes a slow loop of a product with a vector: add a second, empty token
        x = barrier(jnp.concatenate([x, jnp.zeros_like(x)]))
    return _by_tiles(lambda trits: _dot(x, trits, jnp.int32), weight, x.shape[0])[:tokens]


def _filled_floats(codes: Codes) -> Filled:
    return barrier(filled(codes).astype(jnp.float32))


def _float_dot(x: Filled, weight: Planes) -> Sums:
    def product(trits: jax.Array) -> jax.Array:
        return _dot(x, barrier(trits.astype(jnp.float32)), jnp.float32).astype(jnp.int32)

    return _by_tiles(product, weight, x.shape[0])


def tile_rows() -> int:
    """The most rows of a tile, for the threads that XLA-CPU uses."""
    count = threads()
    return ALONE if count == 1 else SHARED * min(count, _SHARING)


def _by_tiles(product: Callable[[jax.Array], jax.Array], weight: Planes, tokens: int) -> Sums:
    """The products, at most ``tile_rows`` at a time. product: of trits int8 [columns, rows], int32 [tokens, rows].

    With several threads the tiles are equal, and a step of the loop has two of them, one in each half of the rows: XLA
    may begin the second while a thread is not done with the first. A last tile that is not whole begins earlier: some
    rows are computed twice.
    """
    out, rows = weight.bits.shape[-1], tile_rows()
    if out <= rows:
        return product(barrier(unpack(weight.matrix())))
    begins, part = [0], out
    if threads() > 1:
        part = -(-out // 2)
        begins, rows = [0, part], -(-part // -(-part // rows))

    def step(index: jax.Array, sums: jax.Array) -> jax.Array:
        for begin in begins:
            first = jnp.minimum(begin + index * rows, out - rows)
            trits = barrier(unpack(weight.rows(first, rows)))
            sums = lax.dynamic_update_slice_in_dim(sums, product(trits), first, axis=1)
        return sums

    return lax.fori_loop(0, -(-part // rows), step, jnp.zeros((tokens, out), jnp.int32))


def _plain(x: Filled, weight: Planes) -> Sums:
    return _dot(x.astype(jnp.int32), unpack(weight.matrix()).astype(jnp.int32), jnp.int32)


def _dot(x: jax.Array, trits: jax.Array, dtype: DTypeLike) -> jax.Array:
    """x [tokens, columns] times trits [columns, rows]."""
    return lax.dot(x, trits, precision=lax.Precision.HIGHEST, preferred_element_type=dtype)


FORMULATIONS = {
    each.name: each
    for each in (
        Formulation(
            "select",
            "one population count for 32 weights and a bit of the codes: as fast as memory for one token "
            "where the processor counts bits in vectors (AVX-512 VPOPCNTDQ)",
            _bits,
            _select,
        ),
        Formulation(
            "bit-serial",
            "the textbook form of the same, two population counts: what select is measured against",
            _bits,
            _bit_serial,
        ),
        Formulation(
            "int8-dot",
            "unpacked to int8, some rows at a time, for XLA's library of int8 kernels (JAX 0.12 and later: VNNI, AMX): "
            "the fastest for more than a few tokens",
            _filled,
            _int8_dot,
        ),
        Formulation(
            "float-dot",
            "the same in float32 for Eigen, exact because every sum is below 2^24: the fastest for many tokens "
            "where XLA has no int8 kernels (JAX before 0.12)",
            _filled_floats,
            _float_dot,
        ),
        Formulation(
            "plain", "int32 by the compiler's own loops: what everything else is checked against", filled, _plain
        ),
    )
}
