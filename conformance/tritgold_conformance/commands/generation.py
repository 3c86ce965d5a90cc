"""From the options of ``run`` to tokens: everything is checked first and computed as the tokens are asked for."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.config import ModelConfig
from tritgold.decode.autoregressive import check_limits, generate, reference_logits
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import Diffusion, resolve
from tritgold.decode.diffusion_record import Diffused
from tritgold.decode.sampling import GREEDY
from tritgold.errors import ConfigError
from tritgold.kv_cache.base import KvScheme
from tritgold.kv_cache.ggml_blocks import BLOCK, BlockScheme
from tritgold.options import THRESHOLD
from tritgold.sparsity.base import SparsityRule, Tally
from tritgold_conformance.commands import backends, printing
from tritgold_conformance.commands.decoding import Decoding
from tritgold_conformance.engines import xla

if TYPE_CHECKING:  # of the JAX engine
    from tritgold_conformance.engines.xla import XlaDiffused, XlaEngine

Facts = dict[str, Any]


class Made(NamedTuple):
    """A token, and why the text ends with it; None while it goes on. token None: it ends without one."""

    token: int | None
    reason: str | None


def generation(
    checkpoint: Checkpoint, prompt: list[int], max_tokens: int, backend: str, decoding: Decoding
) -> tuple[Iterator[Made], Facts]:
    """The tokens, still to be made, and what a report says of them; complete once all have been made.

    Raises click.UsageError and the errors of ``Decoding``, of the scheme and, with the first token at the latest, of
    the decoder, before any compute.
    """
    config, way, sampling = checkpoint.config, decoding.way(checkpoint.config), decoding.sampling()
    backends.refuse(backend, way, decoding)
    try:
        options = decoding.diffusion(config)
    except ConfigError as error:
        raise error.located(file=checkpoint.path if error.kind == "no-diffusion" else None) from None
    rules, tally, capacity = decoding.rules(), Tally(), min(len(prompt) + max_tokens, config.context)
    facts: Facts = {
        "decode": way,
        "sampling": asdict(sampling) if sampling != GREEDY else None,
        "kv_cache": of_scheme(decoding.kv_scheme(), config),
        "sparsity": None,
    }
    if options is not None:
        blocks = _reference_blocks if backend == "reference" else _xla_blocks
        done = blocks(checkpoint, prompt, max_tokens, decoding, options, tally)
        return _measured(_decided(done, decoding, options, config, facts), rules, tally, facts), facts
    if backend == "reference":
        cache, arithmetic = decoding.kv_scheme().cache(config, capacity), decoding.arithmetic(tally)
        logits = reference_logits(checkpoint.weights, config, capacity, cache, arithmetic)
    else:
        check_limits(prompt, config, max_tokens)  # before programs are compiled
        logits = xla_logits(checkpoint, capacity, decoding)
    steps = generate(prompt, config, logits, max_tokens, sampling)
    return _measured((Made(step.token, step.reason) for step in steps), rules, tally, facts), facts


def of_scheme(scheme: KvScheme, config: ModelConfig) -> Facts:
    """What a report says of a KV-cache scheme. across_heads: only where it is so, whether a block spans two heads."""
    spans = isinstance(scheme, BlockScheme) and config.head_dim % BLOCK != 0
    return {
        **({"across_heads": True} if spans else {}),
        "scheme": scheme.id,
        "bits_per_value": scheme.bits_per_value(config),
        "bytes_per_token": config.layers * scheme.bytes_per_token(config),
    }


def _reference_blocks(
    checkpoint: Checkpoint,
    prompt: list[int],
    max_tokens: int,
    decoding: Decoding,
    options: Diffusion,
    tally: Tally,
) -> Diffused:
    config, capacity = checkpoint.config, len(prompt) + max_tokens
    room = min(capacity + resolve(options, config).block, config.context)
    cache, arithmetic = decoding.kv_scheme().cache(config, room), decoding.arithmetic(tally)
    model = reference_block_model(checkpoint.weights, config, options, capacity, cache, arithmetic)
    return block_diffusion(prompt, config, model, max_tokens, options)


def _xla_blocks(
    checkpoint: Checkpoint,
    prompt: list[int],
    max_tokens: int,
    decoding: Decoding,
    options: Diffusion,
    tally: Tally,
) -> "XlaDiffused":
    sizes = resolve(options, checkpoint.config)
    check_limits(prompt, checkpoint.config, max_tokens)
    engine = xla_engine(checkpoint, len(prompt) + max_tokens + sizes.block, decoding)
    return xla.decode_blocks(
        engine,
        prompt,
        max_tokens,
        decoding.way(checkpoint.config),
        THRESHOLD if decoding.threshold is None else decoding.threshold,
        block=sizes.block,
        sub_block=sizes.sub_block,
        max_passes=options.max_passes,
        mask=sizes.mask,
    )


def _decided(
    done: "Diffused | XlaDiffused", decoding: Decoding, options: Diffusion, config: ModelConfig, facts: Facts
) -> Iterator[Made]:
    """All at once: what a block is, is known at its end."""
    sizes, threshold = resolve(options, config), THRESHOLD if decoding.threshold is None else decoding.threshold
    facts |= {
        "threshold": None if facts["decode"] == "greedy" else threshold,
        "block_size": sizes.block,
        "sub_block_size": sizes.sub_block,
        "max_passes": options.max_passes,
        "defects": sorted(options.defects),
        "forwards": done.forwards,
        "commits": done.commits,
        "tokens_per_forward": round(done.tokens_per_forward, 4),
        "forwards_per_block": list(done.forwards_per_block),
        "order": done.order,
    }
    tokens: list[int | None] = [*done.tokens] or [None]
    return iter([*(Made(token, None) for token in tokens[:-1]), Made(tokens[-1], done.reason)])


def _measured(made: Iterator[Made], rules: list[SparsityRule], tally: "Tally", facts: Facts) -> Iterator[Made]:
    """The same tokens; after the last one, how sparse the activations were."""
    yield from made
    if rules:
        named = [{"rule": rule.name, **vars(rule)} for rule in rules]
        measured = {place: round(tally.sparsity(place), 6) for place in tally.of}
        facts["sparsity"] = {"rules": named, "measured": measured}


def xla_logits(checkpoint: Checkpoint, capacity: int, decoding: Decoding) -> "Callable[[list[int]], np.ndarray]":
    """The JAX engine as the function that decoding knows."""
    engine = xla_engine(checkpoint, capacity, decoding)
    return lambda tokens: engine.step(tokens[0]) if len(tokens) == 1 else engine.read(tokens)


def xla_engine(checkpoint: Checkpoint, capacity: int, decoding: Decoding, sequences: int = 1) -> "XlaEngine":
    """The JAX engine with the KV cache that was asked for. Raises MissingDependencyError without JAX."""
    with printing.progress() as say:
        return xla.open_engine(
            checkpoint, capacity, decoding.kv_scheme().name, say, sequences, measure=True, devices=decoding.devices
        )
