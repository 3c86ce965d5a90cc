"""TL1 (GGUF type 38 of the bitnet.cpp fork, its ARM kernels): pairs of weights in nibbles, in tiles.

Source: microsoft/BitNet ``utils/convert-hf-to-gguf-bitnet.py`` (preprocess_weights_tl1) and ``utils/codegen_tl1.py``;
the length from ggml.c of its llama.cpp fork (ggml_nbytes).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.formats.packings.lut_packing import LARGEST_PAIR, LutPacking, count_above, pack_pairs, unpack_pairs
from tritgold.formats.packings.packing_base import check_option
from tritgold.formats.packings.scale_fields import TRAILER

LANES = 16  # bytes of a NEON register: one byte from each of 16 rows


@dataclass(frozen=True)
class TL1(LutPacking):
    """Tiles of BM rows x BK columns, made of blocks of bm x by, by = 256 / bm, made of groups of 16 rows x 4 columns.

    ::

        order of the bytes, slowest first:  tile row, tile column,        out / BM, in / BK
                                            block row, block column,      BM / bm,  BK / by
                                            16 rows, 4 columns, row       bm / 16,  by / 4, 16
        bits    7 6 5 4        3 2 1 0
        weight  columns 0, 1   columns 2, 3      nibble = 3 w0 + w1 + 4, 0..8; 9..15 are refused

    A byte of zero weights is 0x44. The payload of out * in / 4 bytes is followed by a trailer of 32: the scale as
    little-endian float32, which multiplies, and 28 bytes of padding, which may be undefined: never compare them.

    BM, BK, bm: called bm, bk and bmm in kernel_config.ini. bm is 32 or 64, BM a multiple of bm, BK a multiple of by
    (else PackingError ``packing-option``); out is a multiple of BM and in of BK (else ``packing-shape``).

    >>> tile = np.zeros((32, 8), np.int8); tile[0, [0, 3, 4]] = [1, -1, 1]; tile[[1, 16], 0] = -1
    >>> packed = TL1(BM=32, BK=8, bm=32).pack(tile, 1.0)
    >>> [packed[i : i + 1].hex() for i in (0, 1, 2, 16, 32)], packed[64:68].hex()
    (['73', '14', '44', '74', '14'], '0000803f')
    """

    name: ClassVar[str] = "tl1"

    BM: int
    BK: int
    bm: int

    def __post_init__(self) -> None:
        self._require_sizes(BM=self.BM, BK=self.BK)
        check_option(self.name, "bm", self.bm, (32, 64))
        if self.BM % self.bm:
            raise self._no_such_tile(f"BM = {self.BM}", f"BM a multiple of bm = {self.bm}")
        if self.BK % self.by:
            raise self._no_such_tile(f"BK = {self.BK}", f"BK a multiple of 256 / bm = {self.by}")

    @property
    def by(self) -> int:
        """Columns of a block, 256 / bm."""
        return 256 // self.bm

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out * in / 4 + 32 bytes; out must be a multiple of BM and in of BK."""
        shape = self._sizes(shape)
        if shape[0] % self.BM:
            raise self._no_such_shape(shape, f"out a multiple of BM = {self.BM}; {shape[0]} is not")
        if shape[1] % self.BK:
            raise self._no_such_shape(shape, f"in a multiple of BK = {self.BK}; {shape[1]} is not")
        return shape[0] * shape[1] // 4 + TRAILER

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """The index in the class's order of bytes: tile, block, 16 rows, 4 columns, row."""
        tile_row, in_tile = divmod(row, self.BM)
        block_row, in_block = divmod(in_tile, self.bm)
        tile_column, beside_tile = divmod(column, self.BK)
        block_column, beside_block = divmod(beside_tile, self.by)
        index = tile_row * (shape[1] // self.BK) + tile_column
        index = index * (self.BM // self.bm) + block_row
        index = index * (self.BK // self.by) + block_column
        index = index * (self.bm // LANES) + in_block // LANES
        index = index * (self.by // 4) + beside_block // 4
        return index * LANES + in_block % LANES

    def _encode_payload(self, codes: np.ndarray) -> bytes:
        mt, kt, ib, jb, groups, quads = self._counts(codes.shape)
        packed = pack_pairs(codes).reshape(mt, ib, groups, LANES, kt, jb, quads)
        return packed.transpose(0, 4, 1, 5, 2, 6, 3).tobytes()

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        mt, kt, ib, jb, groups, quads = self._counts(shape)
        packed = self._payload(data).reshape(mt, kt, ib, jb, groups, quads, LANES)
        return unpack_pairs(packed.transpose(0, 2, 4, 6, 1, 3, 5).reshape(shape[0], shape[1] // 4))

    def _counts(self, shape: tuple[int, ...]) -> tuple[int, int, int, int, int, int]:
        """Counts: tile rows, tile columns; in a tile: block rows, block columns; in a block: 16 rows, 4 columns."""
        tiles = shape[0] // self.BM, shape[1] // self.BK
        return *tiles, self.BM // self.bm, self.BK // self.by, self.bm // LANES, self.by // 4

    def _count_invalid(self, data: np.ndarray, shape: tuple[int, int]) -> int:
        return count_above(self._payload(data), LARGEST_PAIR)
