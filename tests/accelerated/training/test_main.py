"""The recorded command: one call makes the whole folder, a second goes on where the first stopped, refusals exit 3."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from click.testing import CliRunner
from tiny_training import SMALL, texts

from tritgold.checkpoint import open_checkpoint
from tritgold_xla.training import __main__ as command
from tritgold_xla.training import corpus, loop, objective, run_state
from tritgold_xla.training.corpus import read_corpus, split
from tritgold_xla.training.recipe import RECIPES
from tritgold_xla.training.tokens import streams, train_tokenizer

CORPUS = split(texts())


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The command's recipes and text, made small."""
    for name, recipe in RECIPES.items():
        monkeypatch.setitem(RECIPES, name, replace(recipe, **SMALL))
    monkeypatch.setattr(command, "read_corpus", lambda path: CORPUS)
    monkeypatch.setattr(corpus, "OPENINGS", (CORPUS.train[1][:20],))


def finish(run, ids, path, *, evaluate, progress, passages=None):
    """In place of the loop: takes a run to its end without a step."""
    losses = tuple(float(step) for step in range(run.recipe.steps))
    run = replace(run, step=run.recipe.steps, losses=losses, held_out=((run.recipe.steps, 1.5),))
    run = replace(run, parameters=jax.tree.map(lambda p: p + 1 / 8, run.parameters))
    run_state.save(run, path)
    progress(run)
    return run


@pytest.fixture
def untrained(monkeypatch):
    """Every run is finished at once; by name, the runs as they were given to the loop."""
    given = {}

    def train(run, *arguments, **options):
        given[run.recipe.name] = run
        return finish(run, *arguments, **options)

    monkeypatch.setattr(loop, "train", train)
    return given


def call(folder, *options):
    return CliRunner().invoke(command.main, ["kjv.txt", str(folder), *options], catch_exceptions=False)


def test_one_call_makes_the_whole_folder(tmp_path, untrained):
    result = call(tmp_path / "new" / "out")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "new" / "out"
    assert {path.name for path in folder.iterdir()} == {
        *(f"{name}.safetensors" for name in command.BY_DEFAULT),
        *(set(command.BY_DEFAULT) - {"kjv-ar-float"}),  # the run in float32 is not a ternary model
        *("training.json", "tokenizer.json"),
    }
    assert open_checkpoint(folder / "kjv-ar").config.block is None
    assert open_checkpoint(folder / "kjv-dlm").config.block == SMALL["block"]
    facts = json.loads((folder / "training.json").read_text())
    assert set(facts) == {"corpus", *command.BY_DEFAULT}
    tokenizer = train_tokenizer(CORPUS.train, SMALL["vocab"])  # held-out text takes no part in it
    train, held_out = streams(tokenizer, CORPUS)
    assert facts["corpus"]["train"] == {"tokens": len(train.ids), "bytes": train.bytes}
    assert facts["corpus"]["held-out"] == {"tokens": len(held_out.ids), "bytes": held_out.bytes}
    assert (folder / "kjv-dlm" / "tokenizer.json").read_text().rstrip() == tokenizer.to_str()
    for name in command.BY_DEFAULT:
        assert facts[name]["recipe"] == RECIPES[name].as_dict()
        assert f"{name}: 1.500 held-out bits a byte after 8 steps" in result.output


def test_the_diffusion_run_starts_from_the_finished_masters(tmp_path, untrained):
    assert call(tmp_path).exit_code == 0
    finished = run_state.load(RECIPES["kjv-ar"], tmp_path / "kjv-ar.safetensors")
    jax.tree.map(np.testing.assert_array_equal, untrained["kjv-dlm"].parameters, finished.parameters)
    assert untrained["kjv-dlm"].step == 0
    fresh = run_state.begin(RECIPES["kjv-ar"]).parameters
    jax.tree.map(np.testing.assert_array_equal, untrained["kjv-ar-float"].parameters, fresh)


def test_interrupted_the_same_command_goes_on(tmp_path, monkeypatch):
    batch_of, steps = objective.batch_of, []

    def batch(ids, recipe, step):
        steps.append(step)
        if steps == [0, 1, 2, 3]:
            raise KeyboardInterrupt
        return batch_of(ids, recipe, step)

    monkeypatch.setattr(objective, "batch_of", batch)
    first = call(tmp_path, "--only", "kjv-ar")
    assert first.exit_code == 130
    assert "goes on from here" in first.stderr
    assert run_state.load(RECIPES["kjv-ar"], tmp_path / "kjv-ar.safetensors").step == 3
    assert not (tmp_path / "kjv-ar").exists()
    second = call(tmp_path, "--only", "kjv-ar")
    assert second.exit_code == 0, second.output
    assert steps == [0, 1, 2, 3, 3, 4, 5, 6, 7]
    facts = json.loads((tmp_path / "training.json").read_text())
    assert facts["kjv-ar"]["held_out_bits_per_byte"][-1][0] == 8
    # Eight steps are enough to be ahead of a model that knows nothing.
    tokens, size = facts["corpus"]["held-out"]["tokens"], facts["corpus"]["held-out"]["bytes"]
    assert 0 < facts["kjv-ar"]["held_out_bits_per_byte"][-1][1] < 0.95 * np.log2(SMALL["vocab"]) * tokens / size
    assert open_checkpoint(tmp_path / "kjv-ar").config.vocab == SMALL["vocab"]


def test_a_finished_folder_is_not_trained_again(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(loop, "train", finish)
        assert call(tmp_path, "--only", "kjv-ar").exit_code == 0
    before = (tmp_path / "kjv-ar.safetensors").read_bytes()
    monkeypatch.setattr(objective, "batch_of", None)  # whoever takes a step fails
    assert call(tmp_path, "--only", "kjv-ar").exit_code == 0
    assert (tmp_path / "kjv-ar.safetensors").read_bytes() == before


def test_a_missing_text_exits_with_3_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "read_corpus", read_corpus)
    result = CliRunner().invoke(command.main, [str(tmp_path / "kjv.txt"), str(tmp_path / "out")])
    assert result.exit_code == 3
    assert result.stderr.startswith(f"FormatError: {tmp_path / 'kjv.txt'}: cannot be read")
    assert result.stderr.rstrip().endswith("[corpus-missing]")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("state", "found"), [(None, "no file"), (3, "3 steps")])
def test_a_run_whose_start_is_not_finished_exits_with_3(tmp_path, state, found):
    if state is not None:
        run_state.save(replace(run_state.begin(RECIPES["kjv-ar"]), step=state), tmp_path / "kjv-ar.safetensors")
    result = call(tmp_path, "--only", "kjv-dlm")
    assert result.exit_code == 3
    assert result.stderr.startswith("ConfigError: ")
    assert f"found {found}, expected 8 steps" in result.stderr
    assert "--only kjv-ar" in result.stderr
    assert result.stderr.rstrip().endswith("[start]")
    assert not (tmp_path / "kjv-dlm.safetensors").exists()


def test_a_state_of_another_recipe_exits_with_3(tmp_path, monkeypatch):
    run_state.save(run_state.begin(RECIPES["kjv-ar"]), tmp_path / "kjv-ar.safetensors")
    monkeypatch.setitem(RECIPES, "kjv-ar", replace(RECIPES["kjv-ar"], peak=0.5))
    result = call(tmp_path, "--only", "kjv-ar")
    assert result.exit_code == 3
    assert "peak" in result.stderr
    assert result.stderr.rstrip().endswith("[recipe-changed]")


def test_help_says_how_to_fetch_the_text():
    result = CliRunner().invoke(command.main, ["--help"])
    assert result.exit_code == 0
    assert "apt-get download bible-kjv" in result.output
    # Unwrapped: a shell must be able to run each line.
    assert "echo Gen1:1-Rev22:21 | kjv/usr/bin/bible -f -d kjv/usr/lib/bible.data > kjv.txt\n" in result.output
