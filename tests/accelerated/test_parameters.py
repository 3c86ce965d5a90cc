from dataclasses import replace

import jax
import numpy as np
import pytest
from engine_cases import LLAMA, MIXED, Matrix, make_weights

from tritgold.errors import NonFiniteError, WeightsError
from tritgold_xla.parameters import load_parameters
from tritgold_xla.place import Place


def load(config, weights):
    return load_parameters(config, weights, 16, Place(jax.devices("cpu")[0]))


def test_the_packed_planes_are_the_only_copy_of_the_ternary_weights():
    config = replace(LLAMA, hidden=128, inter=256, heads=8, head_dim=16)  # widths that fill their words
    loaded = load(config, make_weights(config))
    weights = sum(np.prod(config.linear_shape(n)) for n in loaded.layers.linears) * config.layers
    held = sum(array.nbytes for array in jax.tree.leaves(loaded.layers.linears))
    rows = sum(config.linear_shape(n)[0] for n in loaded.layers.linears) * config.layers
    assert held == weights / 4 + 4 * rows + 4 * 7 * config.layers  # two bits a weight, a count a row, a scale a matrix
    assert all(array.nbytes < weights for array in jax.tree.leaves(loaded)), "a matrix that is not packed"


def test_a_tied_head_is_the_embedding_itself():
    loaded = load(MIXED, make_weights(MIXED))
    assert loaded.head is loaded.embedding
    untied = load(LLAMA, make_weights(LLAMA))
    assert untied.head is not untied.embedding


@pytest.mark.parametrize(
    ("thing", "change"),
    [
        ("layers", lambda w: replace(w, layers=w.layers[:1])),
        ("layers.1.k", lambda w: replace(w, layers=(w.layers[0], replace(w.layers[1], k=w.layers[1].o)))),
        ("attn_sub_norm", lambda w: replace(w, layers=(w.layers[0], replace(w.layers[1], attn_sub_norm=None)))),
        ("ffn_norm", lambda w: replace(w, layers=(w.layers[0], replace(w.layers[1], ffn_norm=w.final_norm[1:])))),
        ("final_norm", lambda w: replace(w, final_norm=w.final_norm[:-1])),
        ("embedding", lambda w: replace(w, embedding=Matrix(w.embedding.array[1:]))),
        ("head", lambda w: replace(w, head=Matrix(w.embedding.array[:, 1:]))),
    ],
)
def test_tensors_of_another_shape_are_refused_by_name(thing, change):
    with pytest.raises(WeightsError, match=rf"^{thing}: does not fit the configuration.*\[shape\]"):
        load(MIXED, change(make_weights(MIXED)))


def test_a_sub_norm_that_the_model_has_no_place_for_is_refused():
    weights = make_weights(replace(LLAMA, sub_norms=True))
    with pytest.raises(WeightsError, match="attn_sub_norm: is not part of this model"):
        load(LLAMA, weights)


def test_a_master_that_is_not_finite_is_refused_by_name():
    weights = make_weights(MIXED, online=False)
    weights.layers[1].up.master.array[3, 3] = np.nan
    with pytest.raises(NonFiniteError, match=r"layers\.1\.up"):
        load(MIXED, weights)
