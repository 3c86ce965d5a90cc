"""Rows of questions: what counts, what sees what, and that scores are those of greedy decoding."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tiny_training import SMALL, varied

from tritgold.skills import TASKS, held_out_questions
from tritgold_xla.training import loop, objective, qat, questions, run_state
from tritgold_xla.training.recipe import RECIPES
from tritgold_xla.training.tokens import BOS, EOS, MASK

AR = replace(RECIPES["skills-ar"], **SMALL | {"batch": 4, "length": 64, "vocab": 260})
DLM = replace(AR, name="tiny-dlm", objective="block diffusion")


def pieces(row):
    """The questions of a row as (ids, offset): each from its <bos> up to the next."""
    starts = np.flatnonzero(row == BOS)
    return [(row[a:b], a) for a, b in zip(starts, [*starts[1:], len(row)], strict=True)]


@pytest.mark.parametrize("recipe", [AR, DLM], ids=["ar", "dlm"])
def test_what_comes_after_the_prompt_counts_and_nothing_else(recipe):
    tokenizer = questions.question_tokenizer()
    rows = questions.batch_of(recipe, 3)
    assert rows.tokens.shape == rows.counted.shape == (4, 65)
    for row, counted in zip(rows.tokens, rows.counted, strict=True):
        for ids, at in pieces(row):
            text = tokenizer.decode(ids.tolist(), skip_special_tokens=True)
            prompt = 1 + text.index("=") + 1
            end = at + 1 + len(text) + 1  # after its <eos>
            assert not counted[at : at + prompt].any()
            assert counted[at + prompt : end].all()
            assert row[end - 1] == EOS
            if recipe is DLM:
                assert at % recipe.block == 0
                whole = -(-(end - at) // recipe.block) * recipe.block
                assert counted[end : at + whole].all()
                assert (row[end : at + whole] == EOS).all()


def test_batches_are_decided_by_seed_and_step():
    again = [questions.batch_of(AR, 5).tokens for _ in range(2)]
    np.testing.assert_array_equal(*again)
    assert (questions.batch_of(AR, 6).tokens != again[0]).any()
    assert (questions.batch_of(replace(AR, seed=1), 5).tokens != again[0]).any()


@pytest.mark.parametrize("recipe", [AR, DLM], ids=["ar", "dlm"])
def test_questions_of_a_row_do_not_see_one_another(recipe):
    """Another first question changes no state of the second, nor the other way round."""
    parameters, rows = varied(recipe), questions.batch_of(recipe, 0)
    row = next(row for row in rows.tokens[:, :-1] if len(pieces(row)) > 1)
    (_, _), (_, second) = pieces(row)[:2]
    other = row.copy()
    other[1:second] = np.where(row[1:second] == EOS, EOS, row[1:second] + 1)
    clean = objective.diffusion_mask(64, recipe.block)[64:, 64:] if recipe is DLM else np.tril(np.ones((64, 64), bool))
    both = np.stack([row, other])
    states = objective.hidden_states(
        parameters, both, recipe, np.arange(64), objective.own_question(clean, both, recipe)
    )
    assert (states[0, second - 1] != states[1, second - 1]).any()
    np.testing.assert_array_equal(states[0, second:], states[1, second:])


def test_only_what_counts_is_ever_masked():
    """Where all is to be masked, the noisy half shows the masks in place of what counts, and everything else."""
    rows, noise = questions.batch_of(DLM, 0), np.ones((4, 64), bool)
    seen = []
    network = objective.hidden_states
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            objective, "hidden_states", lambda p, tokens, *more: seen.append(tokens) or network(p, tokens, *more)
        )
        objective.loss(varied(DLM), rows.tokens, noise, DLM, rows.counted)
    noisy = np.asarray(seen[0])[:4, :64]
    np.testing.assert_array_equal(noisy, np.where(rows.counted, MASK, rows.tokens)[:, :-1])


def test_the_score_is_that_of_greedy_decoding(monkeypatch):
    """One pass over question and answer guesses what single steps over its prefixes do."""
    monkeypatch.setattr(questions, "ASKED", 2)
    shares = questions.accuracy(AR)(varied(AR))
    assert set(shares) == set(TASKS)
    assert all(0 <= share <= 1 for share in shares.values())
    question = held_out_questions("compare", 1, 1)[0]
    tokens, counted = questions._row(question, AR)
    guessed = np.asarray(questions.guesses(varied(AR), tokens, counted, AR))[0]
    # The same by single steps: the likeliest token after each prefix.
    ids = tokens[0, : 1 + len(question.prompt) + len(question.answer)]
    for at in (1 + len(question.prompt), len(ids) - 1):
        prefix = ids[None, :at]
        states = objective.hidden_states(varied(AR), prefix, AR, np.arange(at), np.tril(np.ones((at, at), bool)))
        assert int(qat.logits(varied(AR), states)[0, -1].argmax()) == guessed[at - 1]


@pytest.mark.parametrize("recipe", [AR, replace(DLM, causal=True, answers=True)], ids=["ar", "answers"])
def test_a_run_learns_and_goes_on_as_if_it_had_not_stopped(recipe, tmp_path, monkeypatch):
    recipe = replace(recipe, steps=8, warmup=2)
    starts = []
    loss = objective.loss
    monkeypatch.setattr(objective, "loss", lambda *asked: starts.append(asked[-1]) or loss(*asked))
    none = np.zeros(0, np.int32)
    whole = loop.train(run_state.begin(recipe), none, tmp_path / "whole", evaluate=lambda p: 0.0)
    assert whole.losses[-1] < 0.8 * whole.losses[0]

    def stop(run):
        if run.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.train(run_state.begin(recipe), none, tmp_path / "cut", evaluate=lambda p: 0.0, progress=stop)
    again = loop.train(run_state.load(recipe, tmp_path / "cut"), none, tmp_path / "cut", evaluate=lambda p: 0.0)
    jax.tree.map(np.testing.assert_array_equal, again.parameters, whole.parameters)
    assert again.losses == whole.losses
    assert all((given is None) == (recipe.objective == "autoregressive") for given in starts)
