"""The base classes of KV caches and of KV schemes.

A *scheme* defines how keys and values are stored, and their size; a *cache* is the memory of one sequence in a scheme.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from tritgold.errors import ConfigError, ContextError, NonFiniteError
from tritgold.option_values import is_count

Side = Literal["k", "v"]
SIDES: tuple[Side, Side] = ("k", "v")
EXACT = "f32"  # the id of the scheme that changes no bit


@runtime_checkable
class KvShape(Protocol):
    """The sizes that a cache depends on; a ModelConfig has them."""

    @property
    def layers(self) -> int:
        """Decoder layers."""

    @property
    def kv_heads(self) -> int:
        """Heads of keys and of values."""

    @property
    def head_dim(self) -> int:
        """Width of one head."""


@dataclass(frozen=True)
class Sizes:
    """A KvShape without a model, for arithmetic and measurements."""

    layers: int
    kv_heads: int
    head_dim: int


class KvCache(ABC):
    """Keys and values of one sequence, in every layer.

    scheme: the scheme's id. capacity: most positions. length: positions stored so far, the same for all layers
    between two forward passes. A pass appends to each layer once and then calls ``advance``. An incomplete pass does
    not change ``length``, and the next pass overwrites what it appended.
    """

    def __init__(self, scheme: str, shape: KvShape, capacity: int) -> None:
        """Raises ConfigError ``kv-option`` if capacity is not an integer from 0, ``kv-shape`` for sizes below 1."""
        sizes = shape.layers, shape.kv_heads, shape.head_dim
        if not all(is_count(size, 1) for size in sizes):
            expected = "layers, kv_heads, head_dim: integers, 1 or more"
            raise ConfigError("no such cache", kind="kv-shape", got=str(sizes), expected=expected)
        if not is_count(capacity):
            raise ConfigError(
                "is not usable",
                kind="kv-option",
                thing="capacity",
                got=repr(capacity),
                expected="an integer, 0 or more",
            )
        self.scheme, self.shape, self.capacity, self.length = scheme, shape, capacity, 0

    def check_pass(self, layer: int, k: np.ndarray, v: np.ndarray) -> None:
        """Refuse arguments of ``append`` that are not k and v of this model (ContextError ``kv-array``) or do not fit.

        Without it NumPy would broadcast a missing head, read [3, 1, 64] as [3, 2, 32], and use the last layer for -1.
        """
        heads = (self.shape.kv_heads, self.shape.head_dim)
        if not is_count(layer, 0, self.shape.layers - 1):
            expected = f"0 to {self.shape.layers - 1}"
            raise ContextError("no such layer", kind="kv-array", thing="layer", got=repr(layer), expected=expected)
        for side, x in zip(SIDES, (k, v), strict=True):
            if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.shape != (*np.shape(k)[:1], *heads):
                got = f"{x.dtype} {list(x.shape)}" if isinstance(x, np.ndarray) else f"a {type(x).__name__}"
                expected = f"float32 [tokens, {heads[0]}, {heads[1]}], k and v alike"
                thing = f"layers.{layer}.{side}"
                raise ContextError("cannot be stored", kind="kv-array", thing=thing, got=got, expected=expected)
        self.check_room(len(k))

    def check_room(self, tokens: int) -> None:
        """Refuse (ContextError ``cache-full``) tokens that do not fit; to call before they are computed."""
        end = self.length + tokens
        if end > self.capacity:
            raise ContextError(
                "the KV cache is full", kind="cache-full", got=f"{end} positions", expected=f"at most {self.capacity}"
            )

    @abstractmethod
    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Store k (after RoPE) and v, float32 [tokens, kv_heads, head_dim], from position ``length`` on.

        Returns all keys and values of the layer from position 0 on, including these, as float32 read from the scheme.
        Raises as ``check_pass`` does, and NonFiniteError for values that the scheme cannot hold; then nothing is
        overwritten.
        """

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on, to continue differently from there.

        Raises ContextError (``kv-truncate``) if length is not an integer from 0.
        """
        self.length = self.kept_by(length)

    def kept_by(self, length: int) -> int:
        """The number of positions that ``truncate(length)`` keeps. Raises as ``truncate`` does."""
        if not is_count(length):
            got, expected = repr(length), "an integer, 0 or more"
            raise ContextError("is not a length", kind="kv-truncate", got=got, expected=expected)
        return min(self.length, length)

    def advance(self, tokens: int) -> None:
        """Add ``tokens`` to ``length``, after all layers have appended them.

        Raises ContextError (``cache-full``) if that exceeds the capacity or is negative.
        """
        if not is_count(tokens, 0, self.capacity - self.length):
            expected = f"0 to {self.capacity - self.length}, the room that is left"
            raise ContextError("cannot advance", kind="cache-full", got=repr(tokens), expected=expected)
        self.length += tokens


@dataclass(frozen=True)
class KvScheme(ABC):
    """A way to store keys and values. Immutable; its options are its fields."""

    name: ClassVar[str]

    @property
    def id(self) -> str:
        """The name and the options that are not the defaults, for traces and tables: ``hadamard-inner-q4_0``.

        It has no point and no slash, because these have a meaning in the id of an arithmetic mode.
        """
        other = [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default]
        text = self.name + "".join(f"-{name}-{getattr(value, 'id', value)}" for name, value in other)
        return text.replace(".", "_").replace(" ", "")

    @abstractmethod
    def bytes_per_token(self, shape: KvShape) -> int:
        """Bytes of the k and the v of one token in one layer, scales included; for KIVI, of a token outside its window.

        Raises ConfigError (``kv-shape``) for heads that the scheme cannot hold.
        """

    def bits_per_value(self, shape: KvShape) -> float:
        """Bits per number stored, scales included."""
        return 8 * self.bytes_per_token(shape) / (2 * shape.kv_heads * shape.head_dim)

    def cache_bytes(self, shape: KvShape, tokens: int) -> int:
        """Bytes of a cache that holds ``tokens`` tokens, all layers together."""
        return shape.layers * tokens * self.bytes_per_token(shape)

    @abstractmethod
    def cache(self, shape: KvShape, capacity: int) -> KvCache:
        """An empty cache with room for ``capacity`` positions. Raises ConfigError as ``bytes_per_token`` does."""

    def no_such_shape(self, shape: KvShape, rule: str) -> ConfigError:
        """The error for heads that the scheme cannot hold."""
        got = f"{shape.kv_heads} heads of {shape.head_dim}"
        return ConfigError(f"{self.name} cannot hold these heads", kind="kv-shape", got=got, expected=rule)

    def no_such_option(self, option: str, expected: str) -> ConfigError:
        """The error for a value that an option cannot take."""
        got = repr(getattr(self, option))
        return ConfigError("is not usable", kind="kv-option", thing=f"{self.name} {option}", got=got, expected=expected)


def check_finite(x: np.ndarray) -> None:
    """Refuse (NonFiniteError ``kv-non-finite``) infinity and NaN in x [tokens, kv_heads, head_dim]."""
    bad = np.argwhere(~np.isfinite(x))
    if bad.size:
        token, head, channel = bad[0].tolist()
        raise NonFiniteError(
            f"token {token} of the pass is not finite in head {head}, channel {channel}",
            kind="kv-non-finite",
            got=float(x[token, head, channel]),
            hint="look for the first non-finite value upstream in the trace",
        )


def as_half(x: np.ndarray) -> np.ndarray:
    """float32 -> little-endian float16 of the same shape, half to even. Overflow: NonFiniteError (``kv-overflow``)."""
    with np.errstate(over="ignore"):
        half = x.astype("<f2")
    if not np.isfinite(half).all():
        raise NonFiniteError(
            "does not fit float16", kind="kv-overflow", got=float(np.abs(x).max()), expected="less than 65520"
        )
    return half
