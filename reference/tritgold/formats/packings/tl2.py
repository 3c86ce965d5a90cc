"""TL2 (GGUF type 39 of the bitnet.cpp fork, its x86 kernels): triples as magnitudes and signs, the rest as pairs.

Source: microsoft/BitNet ``utils/convert-hf-to-gguf-bitnet.py`` (preprocess_weights_tl2), ``utils/codegen_tl2.py``
(limits, place of the scale) and ggml.c of its llama.cpp fork (ggml_nbytes). In other programs 39 is MXFP4.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.formats.packings.lut_packing import (
    LARGEST_PAIR,
    LutPacking,
    count_above,
    pack_pairs,
    split_nibbles,
    unpack_pairs,
)
from tritgold.formats.packings.packing_base import Bytes, check_option
from tritgold.formats.packings.scale_fields import TRAILER

ROWS = 32  # rows of a block, the original's bm; its packer and kernels support only this value
PAIR_COLUMNS = 32  # columns of a block of pairs
FEWEST_COLUMNS = MOST_PAIRS = 256  # the fixed size always counts 256 columns as pairs
LARGEST_TRIPLE = 13  # nibbles 14 and 15 are not a magnitude
GROUP_ORDER = (0, 2, 1, 3)  # which eight rows of a block come first, second ...; its own inverse


@dataclass(frozen=True)
class TL2(LutPacking):
    """Three regions, in tiles of BM rows. The first K3 = in // BK * BK columns are triples, the other K2 are pairs.

    ::

        region A, out * K3 / 6 bytes: magnitudes
          order, slowest first: BM rows, BK columns, 32 rows, 6 columns, row
          bits    7 6 5 4       3 2 1 0
          weight  columns 0..2  columns 3..5   nibble = |v|, v = 9 w0 + 3 w1 + w2; 14 and 15 are refused
        region B, out * K3 / 24 bytes: signs
          order: BM rows, BK columns, 32 rows, 24 columns, then 16 little-endian uint16, number r for rows r and r + 16
          bits    15 14    13 12    ...  1 0
          triple  0        1        ...  7     row r before row r + 16; 1 where v < 0
        region C, out * K2 / 4 bytes: pairs
          order: BM rows, 32 columns, 32 rows, 4 columns, row; nibbles as in TL1, 3 w0 + w1 + 4, 9..15 are refused
        zero padding to the size for K2 = 256 (``fixed_size``), then to a multiple of 32
        trailer of 32 bytes: the scale as little-endian float32, which multiplies, and 28 bytes that may be undefined

    In A and C the 32 rows of a block are in the order 0..7, 16..23, 8..15, 24..31. The sign of v = 0 has no meaning:
    it is written as 0 and ignored on reading; ``odd_bytes`` counts signs of 1 there, and padding bytes that are not 0.

    BM, BK, bm: called bm, bk and bmm in kernel_config.ini. BM is a multiple of 32, BK of 24 (eight triples share a
    uint16), bm is 32 (else PackingError ``packing-option``). out is a multiple of BM, in at least 256, K2 a multiple
    of 32 and at most 256 (else ``packing-shape``).

    Unconfirmed: no published TL2 file is known. The regions and the padding are those of the original packer's
    output; the rounding to 32 and the place of the scale are from the source of ggml.c and codegen_tl2.py, which agree.

    >>> layout, weights = TL2(BM=32, BK=96), np.zeros((32, 256), np.int8)
    >>> layout.region_sizes((32, 256)), layout.fixed_size((32, 256))
    ((1024, 256, 512), 2048)
    >>> weights[8, [0, 1, 2, 5, 192]] = [-1, 1, 0, 1, 1]  # v = -9 + 3 = -6, then v = 1, then the pair (1, 0)
    >>> packed = layout.pack(weights, 1.0)
    >>> a, b, c = packed[:1024], packed[1024:1280], packed[1280:1792]
    >>> a[16:17].hex(), b[16:18].hex(), c[16:17].hex(), packed[2048:2052].hex()
    ('61', '0080', '74', '0000803f')
    """

    name: ClassVar[str] = "tl2"

    BM: int
    BK: int
    bm: int = ROWS

    def __post_init__(self) -> None:
        self._require_sizes(BM=self.BM, BK=self.BK)
        check_option(self.name, "bm", self.bm, (ROWS,))
        if self.BM % ROWS:
            raise self._no_such_tile(f"BM = {self.BM}", f"BM a multiple of bm = {ROWS}")
        if self.BK % 24:
            raise self._no_such_tile(f"BK = {self.BK}", "BK a multiple of 24: eight triples share an uint16 of signs")

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """``fixed_size`` rounded up to a multiple of 32, + 32 bytes; the class lists the possible shapes."""
        shape = self._sizes(shape)
        rows, columns, pairs = shape[0], shape[1], shape[1] % self.BK
        if rows % self.BM:
            raise self._no_such_shape(shape, f"out a multiple of BM = {self.BM}; {rows} is not")
        if columns < FEWEST_COLUMNS:
            raise self._no_such_shape(shape, f"in at least {FEWEST_COLUMNS}: the fixed size counts so many as pairs")
        if pairs % PAIR_COLUMNS:
            raise self._no_such_shape(shape, f"in mod BK = {self.BK} a multiple of {PAIR_COLUMNS}; {pairs} is not")
        if pairs > MOST_PAIRS:
            raise self._no_such_shape(shape, f"in mod BK = {self.BK} at most {MOST_PAIRS}; {pairs} is not")
        return self._padded(shape) + TRAILER

    def fixed_size(self, shape: tuple[int, ...]) -> int:
        """The size to which the original packer pads, in bytes: that of the three regions if K2 = 256, else larger."""
        # Multiplied and divided in this order, each division rounding down, as in ggml.c.
        return (shape[1] - 256) * shape[0] // 3 * 5 // 8 + 256 * shape[0] // 2 * 4 // 8

    def region_sizes(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Bytes of the regions A, B and C."""
        pairs = shape[1] % self.BK
        triples = shape[1] - pairs
        return shape[0] * triples // 6, shape[0] * triples // 24, shape[0] * pairs // 4

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """The byte of the trit's magnitude or pair. (The sign of a triple is in region B.)"""
        triples = shape[1] // self.BK * self.BK
        start, columns, width, a_byte = 0, triples, self.BK, 6
        if column >= triples:
            start, columns, width, a_byte = sum(self.region_sizes(shape)[:2]), shape[1] - triples, PAIR_COLUMNS, 4
            column -= triples
        tile, in_tile = divmod(row, self.BM)
        block, in_block = divmod(in_tile, ROWS)
        index = tile * (columns // width) + column // width
        index = index * (self.BM // ROWS) + block
        index = index * (width // a_byte) + column % width // a_byte
        return start + index * ROWS + 8 * GROUP_ORDER[in_block // 8] + in_block % 8

    def odd_bytes(self, data: Bytes, shape: tuple[int, int]) -> int:
        """Number of bytes of region B with a sign of 1 for v = 0, and of padding bytes that are not 0."""
        flat = self._checked(data, shape)
        magnitudes, signs, _ = self._regions(flat, shape)
        nibbles = split_nibbles(self._from_blocks(magnitudes, shape[0], self.BK // 6))
        padding = self._payload(flat)[sum(self.region_sizes(shape)) :]
        return int(np.count_nonzero(signs & self._sign_bytes(nibbles == 0)) + np.count_nonzero(padding))

    def _encode_payload(self, codes: np.ndarray) -> bytes:
        triples = codes.shape[1] // self.BK * self.BK
        weights = codes[:, :triples].view(np.int8) - np.int8(1)
        values = 9 * weights[:, 0::3] + 3 * weights[:, 1::3] + weights[:, 2::3]
        magnitudes = np.abs(values).view(np.uint8)
        regions = (
            self._to_blocks(magnitudes[:, 0::2] << 4 | magnitudes[:, 1::2], self.BK // 6),
            self._sign_bytes(values < 0),
            self._to_blocks(pack_pairs(codes[:, triples:]), PAIR_COLUMNS // 4),
        )
        return b"".join(region.tobytes() for region in regions).ljust(self._padded(codes.shape), b"\0")

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        magnitudes, signs, pairs = self._regions(data, shape)
        nibbles = split_nibbles(self._from_blocks(magnitudes, shape[0], self.BK // 6))
        values = np.where(self._negative(signs, shape), 13 - nibbles, 13 + nibbles)  # v + 13 = 9 c0 + 3 c1 + c2
        triples = np.stack((values // 9, values // 3 % 3, values % 3), axis=-1)
        triples[nibbles > LARGEST_TRIPLE] = 3
        rest = unpack_pairs(self._from_blocks(pairs, shape[0], PAIR_COLUMNS // 4))
        return np.concatenate((triples.reshape(shape[0], -1), rest), axis=1)

    def _count_invalid(self, data: np.ndarray, shape: tuple[int, int]) -> int:
        magnitudes, _, pairs = self._regions(data, shape)
        return count_above(magnitudes, LARGEST_TRIPLE) + count_above(pairs, LARGEST_PAIR)

    def _padded(self, shape: tuple[int, ...]) -> int:
        return -(-self.fixed_size(shape) // 32) * 32

    def _regions(self, data: np.ndarray, shape: tuple[int, int]) -> list[np.ndarray]:
        """The bytes of A, B and C."""
        a, b, c = self.region_sizes(shape)
        return np.split(data[: a + b + c], (a, a + b))

    def _to_blocks(self, packed: np.ndarray, width: int) -> np.ndarray:
        """Bytes [out, n] by row -> the order of a region; ``width`` bytes of a row are in one block."""
        rows, n = packed.shape
        # The 32 rows of a block as 2 x 2 groups of 8: swapping the two axes gives the order 0, 2, 1, 3.
        grid = packed.reshape(rows // self.BM, self.BM // ROWS, 2, 2, 8, n // width, width)
        return grid.transpose(0, 5, 1, 6, 3, 2, 4)

    def _from_blocks(self, region: np.ndarray, rows: int, width: int) -> np.ndarray:
        """The inverse of ``_to_blocks``."""
        n = region.size // rows
        grid = region.reshape(rows // self.BM, n // width, self.BM // ROWS, width, 2, 2, 8)
        return grid.transpose(0, 2, 5, 4, 6, 1, 3).reshape(rows, n)

    def _sign_bytes(self, negative: np.ndarray) -> np.ndarray:
        """Booleans [out, K3 / 3], one per triple -> the bytes of region B."""
        rows, n = negative.shape
        uint16s = self.BK // 24
        grid = negative.reshape(rows // self.BM, self.BM // ROWS, 2, 16, 3 * n // self.BK, uint16s, 8)
        bits = grid.transpose(0, 4, 1, 5, 3, 6, 2).reshape(-1, 16)
        # The first of the sixteen is bit 15, the highest bit of the second byte.
        return np.packbits(bits[:, ::-1], axis=1, bitorder="little").reshape(-1)

    def _negative(self, signs: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """The inverse of ``_sign_bytes``, as 0 and 1."""
        tiles = shape[0] // self.BM, shape[1] // self.BK, self.BM // ROWS
        bits = np.unpackbits(signs, bitorder="little").reshape(-1, 16)[:, ::-1]
        grid = bits.reshape(*tiles, self.BK // 24, 16, 8, 2).transpose(0, 2, 6, 4, 1, 3, 5)
        return grid.reshape(shape[0], 8 * signs.size // shape[0])
