"""The losses: cross entropy of the next token, or of the masked tokens of a block that sees clean earlier blocks.

Block diffusion follows Fast-dLLM v2 (arXiv 2509.26328): the input is the sequence noisy and clean, at the same
positions; each block has its own mask rate; a noisy block sees all of itself and the earlier clean blocks;
a masked token is predicted by the hidden state before it (token shift); and every mask is used together with its
complement, so that each token is learnt once per pair. The two noisy copies of a pair stand beside one clean copy that
both see: three sequences are computed for a pair instead of four.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tritgold_xla.training import bf16_qat, qat
from tritgold_xla.training.qat import Parameters, logits
from tritgold_xla.training.recipe import Recipe
from tritgold_xla.training.tokens import BOS, MASK

MIN_RATE = 1e-3  # of masked tokens, so that no block has a rate of 0


def batch_of(ids: np.ndarray, recipe: Recipe, step: int) -> np.ndarray:
    """int32 [batch, length + 1]: random crops that depend only on seed and step, so that resuming is exact."""
    places = len(ids) - recipe.length
    # Eight starts use up one value of the counter, so each group of eight has its own counter.
    eights = [
        _draws(recipe, step, first // 8, 0).integers(0, places, min(8, recipe.batch - first))
        for first in range(0, recipe.batch, 8)
    ]
    starts = np.concatenate(eights)
    return ids[starts[:, None] + np.arange(recipe.length + 1)]


def with_passages(rows: np.ndarray, passages: np.ndarray, recipe: Recipe, step: int) -> np.ndarray:
    """``rows``, of which the recipe's share begin with a passage: which rows, and which passages, by seed and step.

    passages: int32 [passages, at most length + 1].
    """
    draws = _draws(recipe, step, 0, 2)
    begun = draws.random(len(rows)) < recipe.passages
    chosen, size = passages[draws.integers(0, len(passages), len(rows))], passages.shape[1]
    return np.concatenate([np.where(begun[:, None], chosen, rows[:, :size]), rows[:, size:]], axis=1)


def loss(
    parameters: Parameters,
    batch: jax.Array,
    noise: jax.Array,
    recipe: Recipe,
    counted: jax.Array | None = None,
    starts: jax.Array | None = None,
) -> jax.Array:
    """The recipe's loss, nats. batch: int [batch, length + 1]; noise: bool [batch, length], for block diffusion.

    counted: bool [batch, length + 1], of rows of questions: the tokens that are to be learnt. None: all of them.
    starts: int [batch, length], as ``block_starts`` has them; None: multiples of the block.
    """
    if recipe.objective == "autoregressive":
        return next_token_loss(parameters, batch, recipe, counted)
    return diffusion_loss(parameters, batch, noise, recipe, counted, starts)


def next_token_loss(
    parameters: Parameters, batch: jax.Array, recipe: Recipe, counted: jax.Array | None = None
) -> jax.Array:
    """Mean cross entropy of the next token, nats. batch: int [batch, length + 1]; counted as ``loss`` has it."""
    length = batch.shape[1] - 1
    mask = own_question(np.tril(np.ones((length, length), bool)), batch[:, :-1], recipe)
    states = hidden_states(parameters, batch[:, :-1], recipe, np.arange(length), mask)
    losses = cross_entropy(logits(parameters, states), batch[:, 1:])
    return losses.mean() if counted is None else (losses * counted[:, 1:]).sum() / counted[:, 1:].sum()


def hidden_states(
    parameters: Parameters, tokens: jax.Array, recipe: Recipe, positions: np.ndarray, mask: np.ndarray | jax.Array
) -> jax.Array:
    """The network's, with the products that the recipe asks for."""
    network = bf16_qat if recipe.products == "bfloat16" else qat
    return network.hidden_states(parameters, tokens, recipe, positions, mask)


def own_question(mask: np.ndarray, tokens: jax.Array, recipe: Recipe) -> np.ndarray | jax.Array:
    """The mask for rows that hold several questions, each from a <bos> on: bool [batch, 1, tokens, tokens].

    For a text, ``mask`` as it is. mask: bool [tokens, tokens] or [batch, 1, tokens, tokens]. tokens: int [batch,
    tokens], or a part of them where the mask is of several copies.
    """
    if recipe.data != "skills":
        return mask
    nth = jnp.tile((tokens == BOS).cumsum(axis=1), mask.shape[-1] // tokens.shape[1])
    return mask & (nth[:, None, :, None] == nth[:, None, None, :])


def cross_entropy(scores: jax.Array, targets: jax.Array) -> jax.Array:
    """-log softmax at the targets, of the shape of the targets."""
    chosen = jnp.take_along_axis(scores, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(scores, axis=-1) - chosen


def noise_of(recipe: Recipe, step: int, starts: np.ndarray | None = None) -> np.ndarray:
    """bool [batch, length]: which tokens are masked; each block has its own rate, uniform between MIN_RATE and 1.

    starts: int [batch, length], as ``block_starts`` has them; None: blocks at multiples of their size.
    """
    rng = _draws(recipe, 0, step, 1)
    rates = MIN_RATE + (1 - MIN_RATE) * rng.random((recipe.batch, recipe.length // recipe.block))
    if starts is None:
        starts = np.broadcast_to(np.arange(recipe.length), (recipe.batch, recipe.length))
    # A question fills whole multiples, and blocks of an answer begin a block apart: no two share a rate.
    rate = np.take_along_axis(rates, starts // recipe.block, axis=1)
    return rng.random((recipe.batch, recipe.length)) < rate


def block_starts(counted: np.ndarray, recipe: Recipe) -> np.ndarray:
    """The index at which the block of each token begins: int32 [rows, length].

    Multiples of the block. With ``recipe.answers``, in the second half of the rows, blocks are counted from the second
    token of each answer, as the causal presets open them; each token before that is a block of its own. counted: bool
    [rows, length + 1], the tokens of answers.
    """
    rows, length, block = len(counted), recipe.length, recipe.block
    place = np.arange(length, dtype=np.int32)
    starts = np.tile(place // block * block, (rows, 1))
    if recipe.answers:
        said = counted[rows // 2 :, :length]
        before = np.maximum.accumulate(np.where(said, -1, place), axis=1)  # the last place that is not of an answer
        nth = place - before - 2  # in the answer, without its first token
        starts[rows // 2 :] = np.where(said & (nth >= 0), place - nth % block, place)
    return starts


def _draws(recipe: Recipe, *counter: int) -> np.random.Generator:
    """Random numbers of the recipe's seed and this counter; drawing advances only the first word of the counter."""
    return np.random.Generator(np.random.Philox(key=recipe.seed, counter=[*counter, 0]))


def diffusion_mask(length: int, block: int, noisy: int = 1) -> np.ndarray:
    """bool [(noisy + 1) length] twice: which keys a query sees. Rows are queries; the clean copy is the last.

    noisy: copies with masks.

    >>> diffusion_mask(2, 1).astype(int).tolist()
    [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    """
    return np.asarray(mask_of_blocks(np.arange(length) // block * block, noisy))


def mask_of_blocks(starts: Any, noisy: int) -> Any:
    """As ``diffusion_mask``, of blocks that begin where ``starts`` says: bool [.., tokens, tokens].

    starts: int [.., length]; tokens = (noisy + 1) length.
    """
    length = starts.shape[-1]
    place, copy = np.tile(np.arange(length), noisy + 1), np.repeat(np.arange(noisy + 1), length)
    at = starts[..., place]
    query, key = at[..., :, None], at[..., None, :]
    itself = (copy[:, None] == copy[None, :]) & (query == key)
    return itself | (copy == noisy)[None, :] & (query > key)


def before(place: np.ndarray) -> np.ndarray:
    """bool [tokens, tokens]: which keys are at the query's place or before it. place: int [tokens]."""
    return place[:, None] >= place[None, :]


def diffusion_loss(
    parameters: Parameters,
    batch: jax.Array,
    masked: jax.Array,
    recipe: Recipe,
    counted: jax.Array | None = None,
    starts: jax.Array | None = None,
) -> jax.Array:
    """Mean cross entropy of the masked tokens, nats, over the mask and its complement.

    batch: int [batch, length + 1], the last token is not used; masked: bool [batch, length]. counted as ``loss`` has
    it: the others are never masked. starts: as ``block_starts`` has them; None: at multiples of the block.

    Where the recipe is causal, the second half of the rows sees only what is before it inside its block too, and the
    loss of its clean copy is added, token by token. With ``recipe.answers`` the clean copy alone learns the first token
    of each block there, which decoding reads off finished tokens.
    """
    clean, (rows, length) = batch[:, :-1], masked.shape
    place, half = np.arange(length), rows // 2
    said = jnp.ones_like(masked) if counted is None else counted[:, :-1]
    begins = np.tile(place // recipe.block * recipe.block, (rows, 1)) if starts is None else starts
    second = np.arange(rows)[:, None] >= half
    first = second & (begins == place) & recipe.answers
    learnt = [which & said for which in (masked, ~masked)]
    tokens = jnp.concatenate([*(jnp.where(each, MASK, clean) for each in learnt), clean], axis=1)
    mask = mask_of_blocks(begins, noisy=2)[:, None]
    if recipe.causal:
        mask &= before(np.tile(place, 3)) | ~second[:, None, None]
    states = hidden_states(parameters, tokens, recipe, np.tile(place, 3), own_question(mask, clean, recipe)).reshape(
        rows, 3, length, -1
    )
    # A token is predicted by the state before it.
    losses = cross_entropy(logits(parameters, states[:, :2, :-1]), jnp.stack([clean, clean], axis=1)[..., 1:])
    counts = (jnp.stack(learnt, axis=1) & ~first[:, None])[..., 1:]
    found = (losses * counts).sum() / jnp.maximum(counts.sum(), 1)
    if not recipe.causal:
        return found
    losses = cross_entropy(logits(parameters, states[half:, 2, :-1]), clean[half:, 1:])
    return found + (losses * said[half:, 1:]).sum() / jnp.maximum(said[half:, 1:].sum(), 1)
