"""From the options of ``run`` to tokens: everything is checked first and computed as the tokens are asked for."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tritgold_conformance.commands import printing
from tritgold_conformance.commands.decoding import Decoding

if TYPE_CHECKING:
    import numpy as np

    from tritgold.checkpoint import Checkpoint
    from tritgold.config import ModelConfig
    from tritgold.decode.diffusion_options import Diffusion
    from tritgold.kv_cache.base import KvScheme
    from tritgold.sparsity.base import SparsityRule, Tally

Facts = dict[str, Any]


class Made(NamedTuple):
    """A token, and why the text ends with it; None while it goes on. token None: it ends without one."""

    token: int | None
    reason: str | None


def generation(
    checkpoint: "Checkpoint", prompt: list[int], max_tokens: int, backend: str, decoding: Decoding
) -> tuple[Iterator[Made], Facts]:
    """The tokens, still to be made, and what a report says of them; complete once all have been made.

    Raises click.UsageError and the errors of ``Decoding``, of the scheme and, with the first token at the latest, of
    the decoder, before any compute.
    """
    from tritgold.decode.sampling import GREEDY
    from tritgold.errors import ConfigError
    from tritgold.sparsity.base import Tally

    config, way, sampling = checkpoint.config, decoding.way(checkpoint.config), decoding.sampling()
    used = asdict(sampling) if sampling != GREEDY else None
    facts: Facts = {"decode": way, "sampling": used, "kv_cache": None, "sparsity": None}
    try:
        options = decoding.diffusion(config)
    except ConfigError as error:
        raise error.located(file=checkpoint.path if error.kind == "no-diffusion" else None) from None
    scheme, rules, tally = decoding.kv_scheme(), decoding.rules(), Tally()
    if backend != "reference":
        _refuse(backend, way, decoding)
        logits = _xla_logits(checkpoint, len(prompt) + max_tokens)
        return _token_by_token(checkpoint, prompt, max_tokens, decoding, logits), facts
    facts["kv_cache"] = of_scheme(scheme, config)
    if options is None:
        from tritgold.decode.autoregressive import reference_logits

        capacity = min(len(prompt) + max_tokens, config.context)
        cache, arithmetic = scheme.cache(config, capacity), decoding.arithmetic(tally)
        logits = reference_logits(checkpoint.weights, config, capacity, cache, arithmetic)
        made = _token_by_token(checkpoint, prompt, max_tokens, decoding, logits)
    else:
        made = _block_by_block(checkpoint, prompt, max_tokens, decoding, options, tally, facts)
    return _measured(made, rules, tally, facts), facts


def of_scheme(scheme: "KvScheme", config: "ModelConfig") -> Facts:
    """What a report says of a KV-cache scheme."""
    return {
        "scheme": scheme.id,
        "bits_per_value": scheme.bits_per_value(config),
        "bytes_per_token": config.layers * scheme.bytes_per_token(config),
    }


def _refuse(backend: str, way: str, decoding: Decoding) -> None:
    """What only the golden model has, by name."""
    asked = {f"--decode {way}": way != "ar", "--kv-cache": decoding.kv_cache, "--sparsity": decoding.sparsity}
    if missing := [option for option, there in asked.items() if there]:
        raise click.UsageError(f"--backend {backend} has no {' and no '.join(missing)} yet; leave --backend out")


def _token_by_token(
    checkpoint: "Checkpoint",
    prompt: list[int],
    max_tokens: int,
    decoding: Decoding,
    logits: "Callable[[list[int]], np.ndarray]",
) -> Iterator[Made]:
    from tritgold.decode.autoregressive import generate

    steps = generate(prompt, checkpoint.config, logits, max_tokens, decoding.sampling())
    return (Made(step.token, step.reason) for step in steps)


def _block_by_block(
    checkpoint: "Checkpoint",
    prompt: list[int],
    max_tokens: int,
    decoding: Decoding,
    options: "Diffusion",
    tally: "Tally",
    facts: Facts,
) -> Iterator[Made]:
    """All at once: what a block is, is known at its end."""
    from tritgold.decode.block_diffusion import block_diffusion
    from tritgold.decode.block_model import reference_block_model
    from tritgold.decode.diffusion_options import resolve
    from tritgold.decode.diffusion_presets import THRESHOLD

    config, sizes = checkpoint.config, resolve(options, checkpoint.config)
    capacity = len(prompt) + max_tokens
    cache = decoding.kv_scheme().cache(config, min(capacity + sizes.block, config.context))
    arithmetic = decoding.arithmetic(tally)
    model = reference_block_model(checkpoint.weights, config, options, capacity, cache, arithmetic)
    done = block_diffusion(prompt, config, model, max_tokens, options)
    threshold = THRESHOLD if decoding.threshold is None else decoding.threshold
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


def _measured(made: Iterator[Made], rules: "list[SparsityRule]", tally: "Tally", facts: Facts) -> Iterator[Made]:
    """The same tokens; behind the last one, how sparse it was."""
    yield from made
    if rules:
        named = [{"rule": rule.name, **vars(rule)} for rule in rules]
        measured = {place: round(tally.sparsity(place), 6) for place in tally.of}
        facts["sparsity"] = {"rules": named, "measured": measured}


def _xla_logits(checkpoint: "Checkpoint", capacity: int) -> "Callable[[list[int]], np.ndarray]":
    """The JAX engine as the function that decoding knows."""
    from tritgold_conformance.engines.xla import open_engine

    with printing.progress() as say:
        engine = open_engine(checkpoint, capacity, say=say)
    return lambda tokens: engine.step(tokens[0]) if len(tokens) == 1 else engine.prefill(tokens)[-1]
