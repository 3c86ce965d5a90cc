"""What is minimised: the next token, or the masked tokens of a block that sees clean earlier blocks.

Block diffusion follows Fast-dLLM v2 (arXiv 2509.26328): the sequence stands twice, noisy and clean, at the same
positions; each block is masked at a rate of its own; the noisy block sees itself both ways and the clean blocks before
it; a masked token is predicted by the hidden state before it (token shift); and every mask is used together with its
complement, so that each token is learnt once in the pair.
"""

import jax
import jax.numpy as jnp
import numpy as np

from tritgold_xla.training.qat import Parameters, hidden_states, logits
from tritgold_xla.training.recipe import Recipe
from tritgold_xla.training.tokens import MASK

MIN_RATE = 1e-3  # every block keeps a chance of a masked token


def batch_of(ids: np.ndarray, recipe: Recipe, step: int) -> np.ndarray:
    """int32 [batch, length + 1]: crops at random places, decided by seed and step alone, so that resuming is exact."""
    places = len(ids) - recipe.length
    # Eight starts use up one value of the counter, so each eight have a counter of their own.
    eights = [
        _draws(recipe, step, first // 8, 0).integers(0, places, min(8, recipe.batch - first))
        for first in range(0, recipe.batch, 8)
    ]
    starts = np.concatenate(eights)
    return ids[starts[:, None] + np.arange(recipe.length + 1)]


def loss(parameters: Parameters, batch: jax.Array, noise: jax.Array, recipe: Recipe) -> jax.Array:
    """What the recipe minimises, nats. batch: int [batch, length + 1]; noise: bool [batch, length]."""
    if recipe.objective == "autoregressive":
        return next_token_loss(parameters, batch, recipe)
    return diffusion_loss(parameters, batch, noise, recipe)


def next_token_loss(parameters: Parameters, batch: jax.Array, recipe: Recipe) -> jax.Array:
    """Mean cross entropy of the next token, nats. batch: int [batch, length + 1]."""
    length = batch.shape[1] - 1
    causal = np.tril(np.ones((length, length), bool))
    states = hidden_states(parameters, batch[:, :-1], recipe, np.arange(length), causal)
    return cross_entropy(logits(parameters, states), batch[:, 1:]).mean()


def cross_entropy(scores: jax.Array, targets: jax.Array) -> jax.Array:
    """-log softmax at the targets, of the shape of the targets."""
    chosen = jnp.take_along_axis(scores, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(scores, axis=-1) - chosen


def noise_of(recipe: Recipe, step: int) -> np.ndarray:
    """bool [batch, length]: which tokens are masked; a rate for each block, uniform between MIN_RATE and 1."""
    rng = _draws(recipe, 0, step, 1)
    blocks = recipe.length // recipe.block
    rate = MIN_RATE + (1 - MIN_RATE) * rng.random((recipe.batch, blocks, 1))
    return (rng.random((recipe.batch, blocks, recipe.block)) < rate).reshape(recipe.batch, recipe.length)


def _draws(recipe: Recipe, *counter: int) -> np.random.Generator:
    """Random numbers of the recipe's seed, from a place of their own: the first word counts on, the others do not."""
    return np.random.Generator(np.random.Philox(key=recipe.seed, counter=[*counter, 0]))


def diffusion_mask(length: int, block: int) -> np.ndarray:
    """bool [2 length, 2 length]: noisy half first. Rows are queries.

    >>> diffusion_mask(2, 1).astype(int).tolist()
    [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    """
    at = np.arange(2 * length) % length // block
    clean = np.arange(2 * length) >= length
    query, key = at[:, None], at[None, :]
    noisy_to_noisy = ~clean[:, None] & ~clean[None, :] & (query == key)
    noisy_to_clean = ~clean[:, None] & clean[None, :] & (query > key)
    clean_to_clean = clean[:, None] & clean[None, :] & (query >= key)
    return noisy_to_noisy | noisy_to_clean | clean_to_clean


def diffusion_loss(parameters: Parameters, batch: jax.Array, masked: jax.Array, recipe: Recipe) -> jax.Array:
    """Mean cross entropy of the masked tokens, nats, over the mask and its complement.

    batch: int [batch, length + 1], whose last token is not used; masked: bool [batch, length].
    """
    clean = batch[:, :-1]
    length = clean.shape[1]
    both = jnp.concatenate([masked, ~masked])
    twice = jnp.concatenate([clean, clean])
    tokens = jnp.concatenate([jnp.where(both, MASK, twice), twice], axis=1)
    positions = np.tile(np.arange(length), 2)
    states = hidden_states(parameters, tokens, recipe, positions, diffusion_mask(length, recipe.block))
    losses = cross_entropy(logits(parameters, states[:, : length - 1]), twice[:, 1:])  # the state before predicts
    counted = both[:, 1:]
    return (losses * counted).sum() / jnp.maximum(counted.sum(), 1)
