"""Held-out bits per byte: of a network, with sliding windows; and of an interpolated 5-gram, the baseline."""

from collections import Counter
from collections.abc import Callable
from math import log, log2

import jax
import jax.numpy as jnp
import numpy as np

from tritgold_xla.training.objective import cross_entropy, diffusion_mask
from tritgold_xla.training.qat import Parameters, hidden_states, logits
from tritgold_xla.training.recipe import Recipe
from tritgold_xla.training.tokens import MASK, Stream

ORDER, DISCOUNT = 5, 0.75


def windows(ids: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(int [windows, length + 1], bool [windows, length]): every token after the first is predicted exactly once.

    Windows advance by half their length, and only predictions that are new in a window count, so each prediction
    (except in the first window) has at least half a window of context. The last window is padded with zeros.

    >>> tokens, counted = windows(np.arange(1, 7), 4)
    >>> tokens.tolist()
    [[1, 2, 3, 4, 5], [3, 4, 5, 6, 0]]
    >>> counted.astype(int).tolist()
    [[1, 1, 1, 1], [0, 0, 1, 0]]
    """
    stride = length // 2
    starts = np.arange(0, max(len(ids) - 1 - length + stride, 1), stride)
    at = starts[:, None] + np.arange(length + 1)
    tokens = np.where(at < len(ids), np.append(ids, 0)[np.minimum(at, len(ids))], 0)
    counted = (at[:, 1:] < len(ids)) & ((np.arange(length) >= length - stride) | (starts[:, None] == 0))
    return tokens, counted


def held_out_bits(recipe: Recipe, held_out: Stream) -> Callable[[Parameters], float]:
    """The function masters -> held-out bits per byte, for the recipe's objective."""
    if recipe.objective == "autoregressive":
        return bits_per_byte(recipe, held_out)
    return diffusion_bits_per_byte(recipe, held_out)


def bits_per_byte(recipe: Recipe, held_out: Stream, batch: int = 8) -> Callable[[Parameters], float]:
    """The function masters -> held-out bits per byte, reading left to right."""
    tokens, counted = windows(held_out.ids, recipe.length)
    short = -len(tokens) % batch
    tokens, counted = (np.concatenate([a, np.zeros((short, a.shape[1]), a.dtype)]) for a in (tokens, counted))
    causal = np.tril(np.ones((recipe.length, recipe.length), bool))

    @jax.jit
    def nats(parameters: Parameters, tokens: jax.Array, counted: jax.Array) -> jax.Array:
        states = hidden_states(parameters, tokens[:, :-1], recipe, np.arange(recipe.length), causal)
        return (cross_entropy(logits(parameters, states), tokens[:, 1:]) * counted).sum()

    def evaluate(parameters: Parameters) -> float:
        pieces = range(0, len(tokens), batch)
        total = sum(float(nats(parameters, tokens[i : i + batch], counted[i : i + batch])) for i in pieces)
        return total / log(2) / held_out.bytes

    return evaluate


def diffusion_bits_per_byte(
    recipe: Recipe, held_out: Stream, every: int = 8, batch: int = 4
) -> Callable[[Parameters], float]:
    """The same for block diffusion that decides one token at a time: all later tokens of the block are masked.

    Each window is read once for each index within a block. Only every ``every``-th window of the held-out stream is
    used, without overlap, so the first block of each has no context: the result is slightly too pessimistic.
    """
    length, block = recipe.length, recipe.block
    count = (len(held_out.ids) - 1) // length
    tokens = held_out.ids[: count * length].reshape(count, length)[::every]
    tokens = tokens[: max(len(tokens) // batch, 1) * batch]
    share = tokens[:, 1:].size / (len(held_out.ids) - 1)  # the first token of a window is not predicted
    place = np.arange(length) % block
    mask, positions = diffusion_mask(length, block), np.tile(np.arange(length), 2)

    @jax.jit
    def nats(parameters: Parameters, tokens: jax.Array, at: jax.Array) -> jax.Array:
        noisy = jnp.where(place >= at, MASK, tokens)
        both = jnp.concatenate([noisy, tokens], axis=1)
        states = hidden_states(parameters, both, recipe, positions, mask)
        # The first token of a block is predicted from the finished block before it, the others from the noisy block.
        seen = jnp.where(at == 0, states[:, length:], states[:, :length])
        counted = (place == at)[1:]
        return (cross_entropy(logits(parameters, seen[:, :-1]), tokens[:, 1:]) * counted).sum()

    def evaluate(parameters: Parameters) -> float:
        pieces = [tokens[i : i + batch] for i in range(0, len(tokens), batch)]
        total = sum(float(nats(parameters, piece, np.int32(at))) for at in range(block) for piece in pieces)
        return total / log(2) / (held_out.bytes * share)

    return evaluate


def ngram_bits_per_byte(train: Stream, held_out: Stream, vocab: int, order: int = ORDER) -> float:
    """Held-out bits per byte of an interpolated n-gram with absolute discounting, counted on the same tokens.

    P(t | h) = max(n(h t) - d, 0) / n(h) + d * kinds(h) / n(h) * P(t | h without its first token), down to 1 / vocab.
    Source: Ney, Essen, Kneser 1994. The discount is 0.75.
    """
    grams: Counter[tuple[int, ...]] = Counter()
    for n in range(1, order + 1):
        grams.update(zip(*(train.ids[i:].tolist() for i in range(n)), strict=False))
    seen: Counter[tuple[int, ...]] = Counter()
    kinds: Counter[tuple[int, ...]] = Counter()
    for gram, count in grams.items():
        seen[gram[:-1]] += count
        kinds[gram[:-1]] += 1
    bits = 0.0
    ids = held_out.ids.tolist()
    for at in range(1, len(ids)):
        p = 1 / vocab
        for n in range(min(order, at + 1)):
            history = tuple(ids[at - n : at])
            if total := seen[history]:
                p = max(grams[*history, ids[at]] - DISCOUNT, 0) / total + DISCOUNT * kinds[history] / total * p
        bits -= log2(p)
    return bits / held_out.bytes
