"""Dense block types bit for bit as gguf-py has them, on random bytes."""

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

from tritgold.formats.dense_blocks import DENSE_BLOCKS, dequantised
from tritgold.formats.ggml_types import block_weights, tensor_bytes


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", DENSE_BLOCKS)
def test_random_bytes(name: str) -> None:
    size = tensor_bytes(name, (1, block_weights(name)))
    assert size is not None
    raw = np.random.default_rng(len(name)).integers(0, 256, (2000, size), np.uint8)
    expected = dequantize(raw, gguf.GGMLQuantizationType[name])
    found = dequantised(name, raw).reshape(expected.shape)
    wild = np.isnan(expected)
    assert wild.mean() < 0.5
    assert np.array_equal(np.isnan(found), wild)
    assert np.array_equal(found.view(np.uint32)[~wild], expected.view(np.uint32)[~wild])
