"""The loop: two runs of one seed are one run, and so is a run that was stopped anywhere and went on from its file."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from refusals import refusal
from tiny_training import DIFFUSION, TINY, corpus_stream

from tritgold_xla.training import loop, objective, run_state

IDS = corpus_stream().ids


def train(run, path, **options):
    return loop.train(run, IDS, path, evaluate=lambda parameters: float(parameters["embedding"].sum()), **options)


def assert_same(one, other):
    assert one.losses == other.losses
    assert one.held_out == other.held_out
    assert one.step == other.step
    for a, b in zip(
        jax.tree.leaves((one.parameters, one.moments)),
        jax.tree.leaves((other.parameters, other.moments)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module", params=[TINY, DIFFUSION], ids=["next token", "diffusion"])
def straight(request, tmp_path_factory):
    """A run that nothing stopped."""
    folder = tmp_path_factory.mktemp("straight")
    return train(run_state.begin(request.param), folder / "run.safetensors", evaluate_every=3)


def test_the_loss_falls(straight):
    assert len(straight.losses) == straight.recipe.steps == straight.step
    assert straight.losses[0] == pytest.approx(np.log(TINY.vocab), rel=0.03)  # it begins by knowing nothing
    assert straight.losses[-1] < straight.losses[0] - 0.5


def test_the_same_seed_gives_the_same_run(straight, tmp_path):
    again = train(run_state.begin(straight.recipe), tmp_path / "run.safetensors", evaluate_every=3)
    assert_same(again, straight)


def test_another_seed_gives_another_batch_and_other_masters():
    run = run_state.begin(replace(TINY, seed=7))
    assert not np.array_equal(run.parameters["embedding"], run_state.begin(TINY).parameters["embedding"])


def test_stopped_in_the_middle_it_goes_on_to_the_same_end(straight, tmp_path):
    path = tmp_path / "run.safetensors"

    def stop(run):
        if run.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run_state.begin(straight.recipe), path, evaluate_every=3, progress=stop)
    saved = run_state.load(straight.recipe, path)
    assert (saved.step, saved.losses) == (4, straight.losses[:4])
    assert_same(train(saved, path, evaluate_every=3), straight)
    assert_same(run_state.load(straight.recipe, path), straight)


def interrupted(monkeypatch, at, error):
    """Batches as ever, but for step ``at``, which ends in ``error``."""
    batch_of = objective.batch_of

    def batch(ids, recipe, step):
        if step == at:
            raise error
        return batch_of(ids, recipe, step)

    monkeypatch.setattr(objective, "batch_of", batch)


def test_an_interrupt_within_a_step_loses_that_step_alone(straight, tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    with monkeypatch.context() as patch:
        interrupted(patch, 5, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            train(run_state.begin(straight.recipe), path, evaluate_every=3)
    saved = run_state.load(straight.recipe, path)
    assert saved.step == 5
    assert_same(train(saved, path, evaluate_every=3), straight)


def test_a_crash_loses_what_came_after_the_last_save(straight, tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    with monkeypatch.context() as patch:
        interrupted(patch, 5, RuntimeError("the lights went out"))
        with pytest.raises(RuntimeError):
            train(run_state.begin(straight.recipe), path, evaluate_every=3, save_every=2)
    saved = run_state.load(straight.recipe, path)
    assert saved.step == 4
    assert_same(train(saved, path, evaluate_every=3), straight)


def test_held_out_text_is_read_every_so_many_steps_and_at_the_end(straight):
    assert [step for step, _ in straight.held_out] == [3, 6, 8]
    assert straight.held_out[-1][1] == float(straight.parameters["embedding"].sum())


def test_a_finished_run_is_left_alone(straight, tmp_path):
    assert train(straight, tmp_path / "run.safetensors") is straight
    assert list(tmp_path.iterdir()) == []


def test_left_to_right_a_sequence_need_not_hold_whole_blocks(tmp_path, monkeypatch):
    def step(recipe, parameters, moments, batch, noise):
        return parameters, moments, batch.mean()

    monkeypatch.setattr(loop, "_update", step)
    odd = replace(TINY, name="odd", length=DIFFUSION.block * 2 + 1, steps=2, warmup=1)
    assert train(run_state.begin(odd), tmp_path / "run.safetensors").step == 2


def test_every_step_has_its_own_batch_and_noise_and_is_told(tmp_path, monkeypatch):
    def step(recipe, parameters, moments, batch, noise):
        return parameters, moments, (batch[0, 0] + noise.mean()).astype(float)

    monkeypatch.setattr(loop, "_update", step)
    seen = []
    recipe = replace(DIFFUSION, name="told")
    run = train(run_state.begin(recipe), tmp_path / "run.safetensors", progress=seen.append)
    assert [run.step for run in seen] == list(range(1, recipe.steps + 1))
    assert seen[-1] is run
    # Each step had its own batch and its own noise.
    batches = [objective.batch_of(IDS, recipe, step)[0, 0] for step in range(recipe.steps)]
    noises = [objective.noise_of(recipe, step).mean() for step in range(recipe.steps)]
    assert run.losses == pytest.approx(np.add(batches, noises))
    assert run.seconds > 0


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_state_before_it(tmp_path, monkeypatch):
    def step(recipe, parameters, moments, batch, noise):
        return {**parameters, "embedding": parameters["embedding"] + 1}, moments, batch.mean() * np.nan

    monkeypatch.setattr(loop, "_update", step)
    path = tmp_path / "run.safetensors"
    begun = run_state.begin(replace(TINY, name="diverges"))
    run_state.save(begun, path)
    before = path.read_bytes()
    error = refusal(lambda: train(begun, path))
    assert (error.kind, error.file, error.thing) == ("training-diverged", str(path), "step 1")
    assert path.read_bytes() == before


def test_masters_that_are_no_numbers_never_replace_a_state(tmp_path, monkeypatch):
    def step(recipe, parameters, moments, batch, noise):
        return {**parameters, "embedding": parameters["embedding"] * np.nan}, moments, batch.mean()

    monkeypatch.setattr(loop, "_update", step)
    path = tmp_path / "run.safetensors"
    begun = run_state.begin(replace(TINY, name="poisoned"))
    run_state.save(begun, path)
    before = path.read_bytes()
    error = refusal(lambda: train(begun, path, save_every=1))
    assert (error.kind, error.thing) == ("training-diverged", "tensor '0.embedding' after step 1")
    assert path.read_bytes() == before


def test_passages_are_for_a_recipe_with_a_share_of_them_and_for_no_other(tmp_path):
    for recipe, passages in ((TINY, IDS[None, :4]), (replace(TINY, passages=0.5), None)):
        with pytest.raises(ValueError, match="share"):
            train(run_state.begin(recipe), tmp_path / "run", passages=passages)
