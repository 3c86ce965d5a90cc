import numpy as np
import pytest

from tritgold.graph import TracedShape, traced_arrays
from tritgold_xla.runtime.chunks import CHUNKS, bucket, chunks, crop, pad


@pytest.mark.parametrize("tokens", [1, 2, 8, 9, 31, 32, 33, 127, 128, 129, 257, 1000])
def test_chunks_cover_the_tokens_in_order_and_fit_their_buckets(tokens):
    parts = list(chunks(tokens))
    assert np.concatenate([np.arange(tokens)[part] for part in parts]).tolist() == list(range(tokens))
    for part in parts:
        assert part.stop - part.start <= bucket(part.stop - part.start) <= CHUNKS[-1]
    assert all(bucket(n) >= n for n in range(1, 300))


def test_pad():
    assert pad(np.ones((2, 3), np.int8), 4).tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0]]
    assert pad(np.ones((2, 3), np.float32), 3, axis=1).dtype == np.float32


def test_crop_cuts_tokens_and_keys_and_copies():
    arrays = traced_arrays(TracedShape(1, True))
    array = np.zeros((2, 8, 50), np.float32)
    probs, other = (crop(arrays[f"layers.0.{name}"], array, tokens=1, keys=5) for name in ("probs", "q_rope"))
    assert (probs.shape, other.shape) == ((2, 1, 5), (1, 8, 50))
    probs += 1
    other += 1
    assert not array.any()
