"""Packed bytes read wrongly: the formats, and makers of a fault from a wrong reader of one format."""

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing
from tritgold.ternary import TernaryTensor
from tritgold_conformance.faults.fault import Mutant, Mutation, Unpack
from tritgold_conformance.faults.mutate import KEPT, Shape, linears

# The formats that can be read wrongly, by their names in ``unpack``.
FORMATS: dict[str, Packing] = {
    "hf": packing("hf"),
    "i2_s": packing("i2_s"),
    "i2_s-64": packing("i2_s", block=64),
    "tq1_0": packing("tq1_0"),
    "tq2_0": packing("tq2_0"),
    "tl1": packing("tl1", BM=128, BK=64, bm=32),
    "tl2": packing("tl2", BM=128, BK=96),
}
REMEMBERED = 1 << 23  # trits that a fault remembers having misread: the embedded models have 5 million


def reads(format_name: str) -> Callable[[Callable[[bytes, Shape], np.ndarray]], Mutation]:
    """Maker for ``function(data, (out, in))`` -> codes, uint8 [out, in]: a wrong reader of the bytes of a format.

    It raises PackingError or ValueError for shapes that it cannot read: such tensors keep their trits. The model's
    weights are first packed in the format correctly; only the reading is wrong.
    """
    layout = FORMATS[format_name]

    def made(codes: Callable[[bytes, Shape], np.ndarray]) -> Mutation:
        misread = _Newest(lambda trits: np.clip(values(codes(layout.pack(trits), trits.shape)), -1, 1))

        @functools.cache
        def fits(shape: Shape) -> bool:
            try:
                codes(layout.pack(np.zeros(shape, np.int8)), shape)
            except (PackingError, ValueError):
                return False
            return True

        def unpack(data: bytes, shape: Shape) -> np.ndarray:
            return _dense(values(codes(data, shape)), layout.scales(data, shape))

        def change(s: Mutant) -> Mutant:
            changed = linears(s, lambda _, t: TernaryTensor(misread(t.trits), t.scale), fits)
            return with_unpack(changed or s, (format_name,), lambda _, data, shape: unpack(data, shape))

        return change

    return made


def with_unpack(s: Mutant, formats: tuple[str, ...], unpack: Unpack) -> Mutant:
    """The mutant that reads the bytes of these formats with ``unpack``, and other formats as before."""

    def either(name: str, data: bytes, shape: Shape) -> np.ndarray | None:
        read = unpack if name in formats else s.unpack
        return read(name, data, shape) if read else None

    return replace(s, unpack=either)


def refusing_code_3(s: Mutant) -> Mutant:
    """The same reader of packed bytes, but it refuses what it reads as code 3, as a right reader does."""
    if s.unpack is None:
        return s

    def unpack(name: str, data: bytes, shape: Shape) -> np.ndarray | None:
        assert s.unpack is not None
        found = s.unpack(name, data, shape)
        if found is not None and name in FORMATS:
            one = _dense(np.ones(shape, np.int8), np.asarray(FORMATS[name].scales(data, shape)))
            if (found > 1.5 * one).any():
                raise PackingError("has a code that is not a trit", kind="code-3")
        return found

    return replace(s, unpack=unpack)


def reads_as(written: str, layout: Packing) -> Callable[[Callable[[], None]], Mutation]:
    """Maker for a function without a body: a format's payload is read as another layout; a missing trailer is zeros."""

    @reads(written)
    def codes(data: bytes, shape: Shape) -> np.ndarray:
        payload = FORMATS[written].payload(data, shape).tobytes()
        return layout.codes(payload + bytes(layout.packed_size(shape) - len(payload)), shape)

    return lambda page: codes


def reads_codes(written: str, *meant: int) -> Callable[[Callable[[], None]], Mutation]:
    """Maker for a function without a body: codes 0, 1, 2 and 3 of a format are read as the codes ``meant``."""

    @reads(written)
    def codes(data: bytes, shape: Shape) -> np.ndarray:
        return np.array(meant, np.uint8)[FORMATS[written].codes(data, shape)]

    return lambda page: codes


def values(codes: np.ndarray) -> np.ndarray:
    """Codes 0, 1, 2 as -1, 0, 1, and 3 as 2: int8 of the same shape."""
    return codes.astype(np.int8) - np.int8(1)


def _dense(trits: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """float32; trits may contain 2, from code 3."""
    wide = scale if scale.ndim == 0 else np.repeat(scale, trits.shape[1] // scale.shape[1], axis=1)
    return trits.astype(np.float32) * wide


class _Newest:
    """A function of trits that remembers its newest small results, because packing takes longer than a product."""

    def __init__(self, make: Callable[[np.ndarray], np.ndarray]) -> None:
        self._make = make
        # By identity; the source is kept too, so that no other array can get the same address.
        self._known: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, trits: np.ndarray) -> np.ndarray:
        source, made = self._known.get(id(trits), (None, None))
        if source is not trits or made is None:
            made = self._make(trits)
            if trits.size <= KEPT:
                self._known[id(trits)] = (trits, made)
                while sum(kept.size for _, kept in self._known.values()) > REMEMBERED:
                    del self._known[next(iter(self._known))]
        return made
