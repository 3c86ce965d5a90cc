"""Rows of questions: what a run on ``tritgold.skills`` learns from, and what it is scored by while it learns.

A question is ``<bos>37 + 58 = 95<eos>``; only what comes after the prompt counts. Rows hold several of them, each of
which sees itself alone (``objective.own_question``). For block diffusion each begins at a block of its own, as when it
is asked, and the rest of its last block is filled with ``<eos>``, which counts too: a whole block is masked then.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from tritgold.skills import TASKS, Question, held_out_questions, training_questions
from tritgold_xla.training.objective import diffusion_mask, hidden_states, own_question
from tritgold_xla.training.qat import Parameters, logits
from tritgold_xla.training.recipe import MIN_VOCAB, Recipe
from tritgold_xla.training.tokens import BOS, EOS, MASK, train_tokenizer

ASKED = 64  # held-out questions of each task that a run is scored by
LONGEST, MISFITS = 64, 8  # tokens of a question; questions that fit no row before a batch is full


@dataclass(frozen=True, eq=False)
class Rows:
    """tokens: int32 [rows, length + 1]; counted: bool of that shape, the tokens that have to be said."""

    tokens: np.ndarray
    counted: np.ndarray


@cache
def question_tokenizer() -> Tokenizer:
    """A token a character: the bytes after the special tokens, and no merges."""
    return train_tokenizer([], MIN_VOCAB)


@cache
def _character_ids() -> dict[str, int]:
    characters = [chr(code) for code in range(ord(" "), ord("~") + 1)]
    return {character: question_tokenizer().encode(character).ids[1] for character in characters}


def batch_of(recipe: Recipe, step: int) -> Rows:
    """The rows of one step, decided by seed and step alone."""
    return rows_of(training_questions(recipe.seed, step, recipe.more.split()), recipe, recipe.batch)


def rows_of(questions: Iterator[Question], recipe: Recipe, rows: int) -> Rows:
    """Questions in ``rows`` rows: each goes into the first that has room, until several in turn fit nowhere.

    What is left of a row is <eos>. Raises StopIteration where ``questions`` ends before.
    """
    known, blocks = _character_ids(), recipe.objective == "block diffusion"
    tokens = np.full((rows, recipe.length + 1), EOS, np.int32)
    counted, used, left = np.zeros((rows, recipe.length + 1), bool), [0] * rows, MISFITS
    while left:
        question = next(questions)
        ids = [BOS, *(known[character] for character in question.prompt + question.answer), EOS]
        size = -(-len(ids) // recipe.block) * recipe.block if blocks else len(ids)
        row = next((row for row in range(rows) if used[row] + size <= recipe.length), None)
        if row is None:
            left -= 1
            continue
        at = used[row]
        tokens[row, at : at + len(ids)] = ids
        counted[row, at + 1 + len(question.prompt) : at + size] = True
        used[row] += size
    return Rows(tokens, counted)


def accuracy(recipe: Recipe) -> Callable[[Parameters], dict[str, float]]:
    """The function masters -> share of held-out questions of middle difficulty answered right, task by task.

    Token by token, the answer is right exactly where each token of it is the likeliest after the ones before: one pass
    over question and answer is enough. Block diffusion: with the whole answer masked, all decided in one pass with
    block attention, whatever else the recipe trains.
    """
    alone = replace(recipe, length=-(-LONGEST // recipe.block) * recipe.block)
    rows = [_row(question, alone) for task in TASKS for question in held_out_questions(task, 1, ASKED)]
    sizes = [len(held_out_questions(task, 1, ASKED)) for task in TASKS]
    tokens, counted = (np.concatenate(part) for part in zip(*rows, strict=True))

    @jax.jit
    def right(parameters: Parameters, tokens: jax.Array, counted: jax.Array) -> jax.Array:
        return ((guesses(parameters, tokens, counted, alone) == tokens[:, 1:-1]) | ~counted[:, 1:-1]).all(axis=1)

    def evaluate(parameters: Parameters) -> dict[str, float]:
        pieces = [np.resize(np.arange(len(tokens)), -(-len(tokens) // ASKED) * ASKED).reshape(-1, ASKED)]
        found = np.concatenate([np.asarray(right(parameters, tokens[i], counted[i])) for i in pieces[0]])
        ends = np.cumsum(sizes)
        return {task: float(found[end - size : end].mean()) for task, size, end in zip(TASKS, sizes, ends, strict=True)}

    return evaluate


def _row(question: Question, recipe: Recipe) -> tuple[np.ndarray, np.ndarray]:
    found = rows_of(repeat(question), recipe, 1)
    first = np.cumsum(found.tokens == BOS, axis=1) == 1
    return np.where(first, found.tokens, EOS), found.counted & first


def guesses(parameters: Parameters, tokens: jax.Array, counted: jax.Array, recipe: Recipe) -> jax.Array:
    """int [rows, length - 1]: the likeliest token of each place after the first."""
    clean, length = tokens[:, :-1], tokens.shape[1] - 1
    if recipe.objective == "autoregressive":
        mask = own_question(np.tril(np.ones((length, length), bool)), clean, recipe)
        states = hidden_states(parameters, clean, recipe, np.arange(length), mask)
    else:
        mask = own_question(diffusion_mask(length, recipe.block), clean, recipe)
        both = jnp.concatenate([jnp.where(counted[:, :-1], MASK, clean), clean], axis=1)
        states = hidden_states(parameters, both, recipe, np.tile(np.arange(length), 2), mask)[:, :length]
    scores = logits(parameters, states[:, : length - 1])
    return scores.at[..., MASK].set(-jnp.inf).argmax(axis=-1)
