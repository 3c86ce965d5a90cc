import numpy as np
import pytest

from tritgold.graph import operations, trace_names
from tritgold_xla.shapes import TOKENS, crop, token_axis, traced_type


@pytest.mark.parametrize("name", ["seeded", "llama", "mixed"])
def test_the_golden_trace_has_these_types(cases, name):
    golden = cases[name].golden
    for array_name, array in golden.arrays.items():
        dtype, shape = traced_type(array_name, cases[name].config)
        assert array.dtype == dtype, array_name
        assert array.shape == tuple(len(golden.tokens) if n == TOKENS else n for n in shape), array_name


def test_every_name_of_the_graph_has_a_type(cases):
    config = cases["llama"].config
    read = {name for operation in operations(config) for name in operation.reads.values()}
    for name in {*read, *trace_names(config)}:
        traced_type(name, config)


def test_crop_copies():
    array = np.zeros((2, 8, 50), np.float32)
    probs, other = crop("layers.0.probs", array, 3, 5), crop("layers.0.q_rope", array, 1, 5)
    assert (probs.shape, other.shape) == ((2, 3, 5), (1, 8, 50))
    assert (token_axis("layers.0.probs"), token_axis("logits")) == (1, 0)
    probs += 1
    assert not array.any()
