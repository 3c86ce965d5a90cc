"""Forms of ternary products: one token, several tokens, unpacking, and skipping zeros."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tritgold_xla.runtime.flags import jit
from tritgold_xla.runtime.ieee import barrier
from tritgold_xla.studies.study import Form
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS
from tritgold_xla.ternary_matmul.planes import Planes, bit_planes, filled, pack, unpack

SEED = 158
SHARES = (0.5, 0.22, 0.1)  # of columns with a non-zero activation; 0.22 is that of kjv-ar after the squared ReLU


def forms(out: int = 6912, in_: int = 2560) -> Iterator[Form]:
    """All forms of this file. out, in_: size of the matrix, multiples of 128; default: a 2B model's gate and up."""
    rng = np.random.default_rng(SEED)
    trits = rng.integers(-1, 2, (out, in_)).astype(np.int8)
    planes = Planes(*jit(pack)(trits))

    one = _codes(rng, 1, in_)
    yield from _one_token(trits, planes, one)
    yield from _some_tokens(trits, planes, rng)
    yield from _of_a_stack(planes, rng)
    yield from _unpacking(planes, one)
    yield from _gathered(in_, out, rng)


def _codes(rng: np.random.Generator, tokens: int, in_: int) -> np.ndarray:
    return rng.integers(-128, 128, (tokens, in_)).astype(np.int8)


def _one_token(trits: np.ndarray, planes: Planes, one: np.ndarray) -> Iterator[Form]:
    """A product with one token, int8 codes [1, in]."""
    out, in_ = trits.shape
    select, textbook = (FORMULATIONS[name].accumulate for name in ("select", "bit-serial"))
    yield Form(
        "one token: dot with a vector", "`W @ x`", "`W @ [x, 0]`, a second, empty token; a barrier, then `[:, 0]`",
        lambda w, x: _dot(w, x[0]), lambda w, x: _two(w, x)[:, 0],
        (trits, one), out * in_,
    )  # fmt: skip
    yield Form(
        "one token: population counts", "`|P & x| - |N & x|`, two counts", "`|N ^ (M & x)|`, one count",
        textbook, select, (one, planes), out * in_,
    )  # fmt: skip
    yield Form(
        "one token: words folded", "16 words in one fusion", "4 words in one fusion",
        lambda x, w: _folded(x, w, 16), lambda x, w: _folded(x, w, 4), (one, planes), out * in_,
    )  # fmt: skip
    yield Form(
        "one token: sum over words", "`sum(axis=0)` over all words", "4 words folded, then explicit additions",
        _reduced, lambda x, w: _folded(x, w, 4), (one, planes), out * in_,
    )  # fmt: skip
    yield Form(
        "one token: activation planes", "fused into the product", "materialised by a barrier",
        lambda x, w: _folded(x, w, 4, held=False), lambda x, w: _folded(x, w, 4), (one, planes), out * in_,
    )  # fmt: skip
    yield Form(
        "vector width", "the default, 256 bits", "`xla_cpu_prefer_vector_width=512`",
        select, select, (one, planes), out * in_, slow_options={"xla_cpu_enable_fast_math": False},
    )  # fmt: skip


def _some_tokens(trits: np.ndarray, planes: Planes, rng: np.random.Generator) -> Iterator[Form]:
    """Products with several tokens, int8 codes [tokens, in]."""
    out, in_ = trits.shape
    for tokens in (8, 32):
        yield Form(
            f"{tokens} tokens: int8 dot", "weights on the right, `x @ W.T`",
            "weights on the left, a barrier, then `.T`",
            lambda w, x: _dot(x, w), lambda w, x: barrier(_dot(w, x)).T, (trits, _codes(rng, tokens, in_)),
            tokens * out * in_,
        )  # fmt: skip
    for tokens in (32, 128):
        yield Form(
            f"{tokens} tokens: two-bit weights", "the whole matrix unpacked, then its product", "128 rows at a time",
            _unpacked_whole, FORMULATIONS["int8-dot"].accumulate, (_codes(rng, tokens, in_), planes),
            tokens * out * in_,
        )  # fmt: skip
    x = _codes(rng, 32, in_)
    unsigned = (x.astype(np.int16) + 128).astype(np.uint8)
    yield Form(
        "32 tokens: uint8 x int8", "uint8 codes", "codes - 128 as int8, and 128 times the row sums, kept",
        lambda w, x, _: _dot(w, x), _signed, (trits, unsigned, trits.sum(axis=1, dtype=np.int32)), 32 * out * in_,
    )  # fmt: skip
    for bits, dtype in ((4, jnp.int4), (2, jnp.int2)):
        yield Form(
            f"32 tokens: int8 x int{bits}", f"int{bits} weights", "converted to int8 in the same program",
            lambda w, x: _dot(w, x), lambda w, x: _dot(barrier(w.astype(jnp.int8)), x),
            (jnp.asarray(trits).astype(dtype), x), 32 * out * in_,
        )  # fmt: skip


def _of_a_stack(planes: Planes, rng: np.random.Generator) -> Iterator[Form]:
    """Some tokens with each of eight matrices that lie in one array, as the layers of a model do."""
    layers, (_, count, out) = 8, planes.bits.shape
    stack = Planes(*(jnp.tile(a, (layers, *[1] * a.ndim)) for a in (planes.bits, planes.negatives)))
    in_ = 32 * count
    for tokens, name in ((8, "select"), (32, "int8-dot")):

        def all_of(codes: jax.Array, stack: Planes, taken: bool, name: str = name) -> jax.Array:
            def one(layer: jax.Array) -> jax.Array:
                weight = stack._replace(layer=layer)
                if taken:
                    weight = Planes(*barrier((weight.matrix(), weight.row_negatives())))
                return FORMULATIONS[name].accumulate(codes, weight)

            return lax.map(one, lax.iota(jnp.int32, layers))

        yield Form(
            f"{tokens} tokens, 8 layers", "each matrix taken out of the stack, then multiplied",
            "multiplied where it lies", lambda x, w, f=all_of: f(x, w, True), lambda x, w, f=all_of: f(x, w, False),
            (_codes(rng, tokens, in_), stack), layers * tokens * out * in_,
        )  # fmt: skip


def _unpacking(planes: Planes, one: np.ndarray) -> Iterator[Form]:
    """Unpacking of codes to bit planes."""
    yield Form(
        "activation planes", "each bit picked", "8 x 8 bit transposes", _picked, bit_planes, (one[0],),
    )  # fmt: skip
    yield Form(
        "activation planes: compiling a product", "each bit picked", "8 x 8 bit transposes",
        lambda x, w: _folded(x, w, 4, planes=_picked), lambda x, w: _folded(x, w, 4), (one, planes), compiles=True,
    )  # fmt: skip


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return lax.dot_general(a, b, (((1,), (b.ndim - 1,)), ((), ())), preferred_element_type=jnp.int32)


def _two(weights: jax.Array, one: jax.Array) -> jax.Array:
    return barrier(_dot(weights, barrier(jnp.concatenate([one, jnp.zeros_like(one)]))))


def _signed(weights: jax.Array, codes: jax.Array, sums: jax.Array) -> jax.Array:
    shifted = barrier(lax.bitcast_convert_type(codes ^ jnp.uint8(128), jnp.int8))
    return _dot(weights, shifted) + 128 * sums[:, None]


def _counts(x: jax.Array, nonzero: jax.Array, negative: jax.Array, bit: int) -> jax.Array:
    counts = lax.bitcast_convert_type(lax.population_count(negative ^ (nonzero & x)), jnp.int32)
    return -counts * 128 if bit == 7 else counts << bit


def _folded(
    codes: jax.Array,
    weight: Planes,
    fold: int,
    held: bool = True,
    planes: Callable[[jax.Array], jax.Array] = bit_planes,
) -> jax.Array:
    """``select`` with any fold and partial sums of 32 bits; held: with the barrier after the activation planes."""
    bits = planes(codes[0])
    bits = barrier(bits) if held else bits
    _, count, out = weight.bits.shape
    x = bits.reshape(8, count // fold, fold)
    nonzero, negative = weight.bits.reshape(2, count // fold, fold, out)
    total = jnp.zeros((count // fold, out), jnp.int32)
    for bit in range(8):
        for word in range(fold):
            total += _counts(x[bit, :, word, None], nonzero[:, word], negative[:, word], bit)
    rows = list(barrier(total))
    added = rows[0]
    for row in rows[1:]:
        added = added + row
    return added + weight.negatives


def _reduced(codes: jax.Array, weight: Planes) -> jax.Array:
    bits = barrier(bit_planes(codes[0]))
    total = jnp.zeros(weight.bits.shape[1:], jnp.int32)
    for bit in range(8):
        total += _counts(bits[bit, :, None], weight.bits[0], weight.bits[1], bit)
    return total.sum(axis=0) + weight.negatives


def _unpacked_whole(codes: jax.Array, weight: Planes) -> jax.Array:
    return lax.dot(barrier(filled(codes)), barrier(unpack(weight.bits)), preferred_element_type=jnp.int32)


def _picked(codes: jax.Array) -> jax.Array:
    count = codes.shape[0] // 32
    columns = lax.bitcast_convert_type(codes, jnp.uint8).reshape(32, count).astype(jnp.uint32)
    planes = []
    for bit in range(8):
        word = jnp.zeros((count,), jnp.uint32)
        for column in range(32):
            word |= ((columns[column] >> jnp.uint32(bit)) & jnp.uint32(1)) << jnp.uint32(column)
        planes.append(word)
    return jnp.stack(planes)


def _gathered(out: int, in_: int, rng: np.random.Generator) -> Iterator[Form]:
    """The down projection after a squared ReLU: only non-zero columns gathered, compared with all columns as bits."""
    trits = rng.integers(-1, 2, (out, in_)).astype(np.int8)
    planes = Planes(*jit(pack)(trits))
    columns = np.ascontiguousarray(trits.T)
    select = FORMULATIONS["select"].accumulate
    for share in SHARES:
        kept = int(share * in_)
        codes = np.zeros((1, in_), np.int8)
        codes[0, rng.permutation(in_)[:kept]] = rng.integers(1, 128, kept)

        def gather(x: jax.Array, _: Planes, w: jax.Array, kept: int = kept) -> jax.Array:
            (index,) = jnp.nonzero(x[0], size=kept, fill_value=0)
            some = barrier(jnp.take(x[0], index))
            pair = barrier(jnp.stack([some, jnp.zeros_like(some)]))
            return lax.dot_general(
                pair, barrier(jnp.take(w, index, axis=0)), (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32
            )[0]

        yield Form(
            f"skipping zeros, {share:.0%} of the columns left", "int8 columns gathered, then their dot",
            "every column, as bits", gather, lambda x, planes, _: select(x, planes)[0], (codes, planes, columns),
            out * in_,
        )  # fmt: skip
