"""The values of a GGUF file, read one after the other: what is damaged is refused where it stands."""

import struct
from pathlib import Path

import numpy as np
import pytest

from tritgold.errors import FormatError
from tritgold.formats.gguf_values import ARRAY, STRING, GgufValues


def values(tmp_path: Path, data: bytes) -> GgufValues:
    (tmp_path / "m.gguf").write_bytes(data)
    return GgufValues(tmp_path / "m.gguf")


def test_values_are_read_in_order(tmp_path: Path) -> None:
    text = struct.pack("<Q", 3) + b"\xc3\xa9!"
    array = struct.pack("<IQ2h", 3, 2, -1, 300)
    read = values(tmp_path, struct.pack("<I", 7) + text + array)
    assert (read.scalar("I", "number"), read.value(STRING, "key")) == (7, "é!")
    np.testing.assert_array_equal(read.value(ARRAY, "key"), np.array([-1, 300], np.int16))
    assert read.at == len(read.data)


@pytest.mark.parametrize(
    ("data", "type_id", "kind"),
    [
        (b"\x01\x00", 4, "truncated"),
        (b"\x02", 7, "value"),
        (struct.pack("<Q", 1) + b"\xff", STRING, "key-utf8"),
        (struct.pack("<Q", 9) + b"short", STRING, "truncated"),
        (b"\0", 13, "value-type"),
        (struct.pack("<IQ", 9, 1), ARRAY, "value-type"),
        (struct.pack("<IQ", STRING, 1 << 60), ARRAY, "count"),
    ],
)
def test_damaged_values_are_refused(tmp_path: Path, data: bytes, type_id: int, kind: str) -> None:
    with pytest.raises(FormatError) as refused:
        values(tmp_path, data).value(type_id, "key")
    assert (refused.value.kind, refused.value.file) == (kind, str(tmp_path / "m.gguf"))
