"""File readers that are wrong; the engines compute right."""

import numpy as np
from base_engine import F
from full_engine import Files
from registry import faulty

KIND = "packing"


@faulty(KIND, "I2_S of 128 is read in blocks of 64")
class I2sAs64(Files):
    def read_i2s(self, raw: np.ndarray, rows: int, columns: int, block: int) -> np.ndarray:
        return Files.read_i2s(self, raw, rows, columns, 64)


@faulty(KIND, "I2_S of 64 is read in blocks of 128")
class I2sAs128(Files):
    def read_i2s(self, raw: np.ndarray, rows: int, columns: int, block: int) -> np.ndarray:
        return Files.read_i2s(self, raw, rows, columns, 128)


@faulty(KIND, "code 3 is read as 0")
class Code3Zero(Files):
    def trits_of(self, codes: np.ndarray) -> np.ndarray:
        return np.where(codes == 3, 0, codes.astype(F) - 1)


@faulty(KIND, "code 3 is read as +2")
class Code3Two(Files):
    def trits_of(self, codes: np.ndarray) -> np.ndarray:
        return codes.astype(F) - 1


@faulty(KIND, "the scale of I2_S is not read")
class I2sNoScale(Files):
    def read_i2s(self, raw: np.ndarray, rows: int, columns: int, block: int) -> np.ndarray:
        return np.sign(Files.read_i2s(self, raw, rows, columns, block))


@faulty(KIND, "TQ2_0 has the scale of its first block throughout")
class Tq2OneScale(Files):
    def read_tq2(self, raw: np.ndarray, rows: int, columns: int) -> np.ndarray:
        found = Files.read_tq2(self, raw, rows, columns)
        return np.sign(found) * np.abs(found.reshape(-1)[:256]).max()


@faulty(KIND, "TQ2_0 is read four consecutive weights a byte")
class Tq2Consecutive(Files):
    def read_tq2(self, raw: np.ndarray, rows: int, columns: int) -> np.ndarray:
        found = Files.read_tq2(self, raw, rows, columns).reshape(-1, 2, 4, 32)
        return found.swapaxes(2, 3).reshape(rows, columns)


@faulty(KIND, "TQ1_0's bytes of four digits are read as of five")
class Tq1Tail(Files):
    def digits(self, packed: np.ndarray, count: int) -> np.ndarray:
        found = Files.digits(self, packed, count)
        return np.roll(found, 1, 1) if count == 4 else found


@faulty(KIND, "HF's surplus rows are not cropped but the first ones are")
class HfCropsTheFirst(Files):
    def read_hf(self, raw: np.ndarray, rows: int, columns: int) -> np.ndarray:
        padded = Files.read_hf(self, raw, -(-rows // 4) * 4, columns)
        return padded[len(padded) - rows :]


@faulty(KIND, "bytes that are too few are filled with zeros")
class ShortFilled(Files):
    def sized(self, raw: np.ndarray, size: int) -> np.ndarray:
        return np.concatenate([raw, np.full(max(0, size - len(raw)), 0x55, np.uint8)])[:size]


@faulty(KIND, "scales that are not finite are taken")
class NanScales(Files):
    def finite(self, scale: np.ndarray) -> np.ndarray:
        return scale.astype(F)


@faulty(KIND, "HF is read most significant pair first")
class HfTurned(Files):
    def read_hf(self, raw: np.ndarray, rows: int, columns: int) -> np.ndarray:
        packed = self.sized(raw, -(-rows // 4) * columns).reshape(-1, columns)
        codes = np.concatenate([(packed >> shift) & 3 for shift in (6, 4, 2, 0)])
        return self.trits_of(codes)[:rows]


@faulty(KIND, "everything is refused")
class RefusesAll(Files):
    def unpack(self, fmt: str, data: bytes, shape: tuple[int, int]) -> np.ndarray | None:
        raise ValueError("damaged")
