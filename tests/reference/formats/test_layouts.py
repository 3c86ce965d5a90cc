"""Tiles as text: on the command line, and in a key that a hostile file may fill with anything."""

import numpy as np
import pytest
from refusals import refusal

from tritgold.formats.layouts import parse_shape, parse_tile, tiles_of

TILE = np.array([256, 128, 32], np.uint32)
MANY = "9" * 5000  # Python's own limit for reading a number is 4300 digits, and ends in a bare ValueError


def test_a_tile_that_a_file_says() -> None:
    found = tiles_of({"tritgold.tile.1536x4096": TILE, "general.name": "x"}, "m.gguf")
    assert found == {(1536, 4096): {"BM": 256, "BK": 128, "bm": 32}}


@pytest.mark.parametrize(
    "key", ["", "16", "16x", "x16", "16x16x16", "-1x16", "16x1_6", " 16x16", "\u0661\u0666x16", f"{MANY}x16"]
)
def test_a_shape_that_is_none(key: str) -> None:
    error = refusal(lambda: tiles_of({f"tritgold.tile.{key}": TILE}, "m.gguf"))
    assert error.kind == "value"
    assert "m.gguf" in str(error)
    assert refusal(lambda: parse_shape(key)).kind == "packing-option"


@pytest.mark.parametrize("value", [3, "1,2", [], ["a", "b"], TILE[:1], np.ones(4, np.uint32), np.ones(2, np.float32)])
def test_a_tile_that_is_none(value: object) -> None:
    assert refusal(lambda: tiles_of({"tritgold.tile.16x16": value}, "m.gguf")).kind == "value"


@pytest.mark.parametrize("text", ["", "1", "1,2,3,4", "1,x", "-1,2", "\u0661,2", f"{MANY},32"])
def test_a_tile_on_the_command_line_that_is_none(text: str) -> None:
    assert refusal(lambda: parse_tile(text)).kind == "packing-option"
