"""Masters of an exported model: quantised, they are that model again; another shape is refused."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from refusals import refusal
from tiny_training import TINY, tokenizer, varied

from tritgold.errors import ConfigError, FormatError
from tritgold_xla.training import export, masters, running
from tritgold_xla.training.qat import trits_and_scale
from tritgold_xla.training.recipe import RECIPES
from tritgold_xla.training.run_state import begin

AGAIN = replace(TINY, name="again", start=TINY.name, from_file=True, seed=7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of runs that holds one exported model and no state."""
    made = tmp_path_factory.mktemp("runs")
    export.export(begin(TINY, varied(TINY)), tokenizer(), made / TINY.name)
    return made


@pytest.mark.parametrize("scale", [2.0**-7, 0.0302734375, 117.0])
@pytest.mark.parametrize("zeros", [0.0, 0.01, 0.4, 0.9, 0.99])
def test_the_masters_of_trits_have_these_trits_and_this_scale(zeros, scale):
    rng = np.random.default_rng(1)
    trits = np.where(rng.random((64, 64)) < zeros, 0, rng.choice([-1, 1], (64, 64))).astype(np.int8)
    found, found_scale = trits_and_scale(masters.drawn(trits, scale, rng))
    np.testing.assert_array_equal(np.asarray(found), trits)
    assert float(found_scale) == scale


def test_a_matrix_of_zeros_stays_one():
    zeros = np.zeros((64, 64), np.int8)
    assert not masters.drawn(zeros, 0.5, np.random.default_rng(1)).any()


def test_masters_differ_among_themselves():
    """Masters of one size would all cross a threshold in one step."""
    trits = np.random.default_rng(1).integers(-1, 2, (64, 64)).astype(np.int8)
    found = masters.drawn(trits, 1.0, np.random.default_rng(2))
    assert len(np.unique(found)) > 0.99 * trits.size
    for kind in (found[trits == 0], np.abs(found[trits != 0])):
        assert kind.std() > 0.2


def test_exported_again_it_is_the_same_model(folder, tmp_path):
    run = begin(AGAIN, masters.of_model(AGAIN, folder / TINY.name))
    export.export(run, tokenizer(), tmp_path / "again")
    assert (tmp_path / "again/model.safetensors").read_bytes() == (
        folder / TINY.name / "model.safetensors"
    ).read_bytes()


def test_the_seed_decides_the_masters(folder):
    one, same, other = (
        masters.of_model(replace(AGAIN, seed=seed), folder / TINY.name)["layers"]["q"] for seed in (7, 7, 8)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).all()


def test_a_run_starts_from_the_file_without_a_state(folder, monkeypatch):
    monkeypatch.setitem(RECIPES, AGAIN.name, AGAIN)
    started = []
    monkeypatch.setattr(running.loop, "train", lambda run, *more, **options: started.append(run) or run)
    monkeypatch.setattr(running.facts, "recorded", lambda *known: True)
    running.finish(AGAIN.name, folder, np.zeros(0, np.int32), lambda parameters: 0.0)
    jax.tree.map(np.testing.assert_array_equal, started[0].parameters, masters.of_model(AGAIN, folder / TINY.name))


def test_a_model_of_another_shape_is_refused(folder):
    for field in ({"layers": 2}, {"vocab": 301}, {"rope_theta": 5e5}):
        error = refusal(lambda field=field: masters.of_model(replace(AGAIN, **field), folder / TINY.name))
        assert (type(error), error.kind, error.expected) == (ConfigError, "start", field)
        assert error.got == {name: getattr(TINY, name) for name in field}


def test_a_missing_model_is_refused(tmp_path):
    assert isinstance(refusal(lambda: masters.of_model(AGAIN, tmp_path / "none")), FormatError)
