"""A run's file: everything comes back from it, and nothing else is taken for one."""

import json
import resource
from dataclasses import replace

import jax
import numpy as np
import pytest
from refusals import refusal
from small_models import Entry, planned, stored
from tiny_training import TINY, varied

from tritgold.errors import ConfigError, FormatError, OutputError
from tritgold.formats.safetensors_file import SafetensorsFile
from tritgold.formats.safetensors_writer import write_safetensors
from tritgold_xla.training import run_state
from tritgold_xla.training.qat import initial_parameters

KEY = "tritgold.training"


def leaves(run):
    return jax.tree.leaves((run.parameters, run.moments))


@pytest.fixture(scope="module")
def run():
    """A run in the middle; no two of its arrays are equal."""
    rng = np.random.default_rng(0)

    def fill(leaf):
        values = rng.integers(1, 1000, leaf.shape)
        return jax.numpy.asarray(values, leaf.dtype)

    began = run_state.begin(TINY)
    parameters, moments = jax.tree.map(fill, (began.parameters, began.moments))
    held_out = ((2, 1 / 3), (3, 0.1))
    return replace(
        began,
        parameters=parameters,
        moments=moments,
        step=3,
        losses=(5.5, 0.1, float(np.float32(0.1))),
        held_out=held_out,
        seconds=1.25,
    )


@pytest.fixture
def path(run, tmp_path):
    """Its file."""
    run_state.save(run, tmp_path / "run.safetensors")
    return tmp_path / "run.safetensors"


def parts(path):
    """A file's tensors and facts, to be changed and written again."""
    file = SafetensorsFile(path)
    return stored(file.tensors), json.loads(file.metadata[KEY])


@pytest.mark.parametrize("start", [None, varied(TINY)], ids=["seed", "another run"])
def test_a_run_begins_from_its_seed_or_from_another_run(start):
    run = run_state.begin(TINY, start)
    jax.tree.map(np.testing.assert_array_equal, run.parameters, initial_parameters(TINY) if start is None else start)
    assert (run.step, run.losses, run.held_out, run.seconds) == (0, (), (), 0)


def test_everything_comes_back(run, path):
    loaded = run_state.load(TINY, path)
    for got, expected in zip(leaves(loaded), leaves(run), strict=True):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype
    for name in ("recipe", "step", "losses", "held_out", "seconds"):
        assert getattr(loaded, name) == getattr(run, name)


@pytest.mark.parametrize("share", [0.0, 1e-6, 0.001, 0.5, 0.999999])
def test_a_truncated_file_is_refused(path, share):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    error = refusal(lambda: run_state.load(TINY, path))
    assert (type(error), error.file) == (FormatError, str(path))


def test_a_model_is_no_training_run(tmp_path):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, planned({"a": Entry("F32", (1,), bytes(4))}), {"format": "pt"})
    error = refusal(lambda: run_state.load(TINY, path))
    assert (type(error), error.kind, error.file) == (FormatError, "training-state", str(path))


@pytest.mark.parametrize(
    "facts",
    ["", "null", "[]", "{}", '{"recipe": {"name": "tiny", "colour": 1}, "step": 0, "losses": [], "held_out": []}'],
)
def test_facts_that_are_no_runs_are_refused(path, facts):
    entries, _ = parts(path)
    write_safetensors(path, planned(entries), {KEY: facts})
    assert refusal(lambda: run_state.load(TINY, path)).kind == "training-state"


@pytest.mark.parametrize("damage", ["missing", "shape", "dtype"])
def test_a_tensor_that_is_not_as_expected_is_named(path, damage):
    entries, facts = parts(path)
    name = next(name for name in entries if name.endswith("final_norm"))
    changed = {
        "missing": {},
        "shape": {name: Entry("F32", (128, 2), entries[name].data)},
        "dtype": {name: Entry("I32", entries[name].shape, entries[name].data)},
    }
    del entries[name]
    write_safetensors(path, planned(entries | changed[damage]), {KEY: json.dumps(facts)})
    error = refusal(lambda: run_state.load(TINY, path))
    assert (type(error), error.kind) == (FormatError, "training-state")
    assert name in error.thing


@pytest.mark.parametrize("changes", [{"peak": 0.5}, {"steps": 9, "seed": 3}, {"ternary": False}])
def test_a_run_of_another_recipe_is_refused_with_the_fields_that_differ(path, changes):
    error = refusal(lambda: run_state.load(replace(TINY, **changes), path))
    assert (type(error), error.kind, error.file) == (ConfigError, "recipe-changed", str(path))
    assert error.expected == changes
    assert error.got == {name: getattr(TINY, name) for name in changes}


def test_a_save_that_fails_leaves_the_file_before_it(run, path):
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))  # as a full disk: half of it is written
    try:
        error = refusal(lambda: run_state.save(replace(run, step=4), path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (type(error), error.kind, error.file) == (OutputError, "unwritable", str(path))
    assert "File too large" in str(error)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    assert run_state.load(TINY, path).step == 3
