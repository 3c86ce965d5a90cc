"""From the options of ``run`` to tokens: everything is checked first; tokens are computed when they are requested."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

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
from tritgold.sparsity.base import SparsityRule, Tally
from tritgold_conformance.commands import backends, printing
from tritgold_conformance.commands.decoding import Decoding
from tritgold_conformance.engines import xla

if TYPE_CHECKING:  # of the JAX engine
    from tritgold_conformance.engines.xla import XlaDiffused, XlaEngine

Facts = dict[str, Any]


class Made(NamedTuple):
    """A token, and the reason if the text ends with it, otherwise None. token None: the text ends without a token."""

    token: int | None
    reason: str | None


def generation(
    checkpoint: Checkpoint, prompt: list[int], max_tokens: int, backend: str, decoding: Decoding
) -> tuple[Iterator[Made], Facts]:
    """The tokens, computed lazily, and the facts for a report, which are complete after the last token.

    Raises click.UsageError and the errors of ``Decoding`` and of the scheme; errors of the decoder are raised with the
    first token at the latest. Nothing is computed before.
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
        done = _diffused(checkpoint, prompt, max_tokens, backend, decoding, options, tally)
        return _measured(_decided(done, decoding, options, config, facts), rules, tally, facts), facts
    if backend == "reference":
        cache, arithmetic = decoding.kv_scheme().cache(config, capacity), decoding.arithmetic(tally)
        logits = reference_logits(checkpoint.weights, config, capacity, cache, arithmetic)
    else:
        check_limits(prompt, config, max_tokens)  # before programs are compiled
        engine = xla_engine(checkpoint, capacity, decoding)
        logits = lambda tokens: engine.step(tokens[0]) if len(tokens) == 1 else engine.read(tokens)  # noqa: E731
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


def _diffused(
    checkpoint: Checkpoint,
    prompt: list[int],
    max_tokens: int,
    backend: str,
    decoding: Decoding,
    options: Diffusion,
    tally: Tally,
) -> "Diffused | XlaDiffused":
    """All blocks, by the reference or the JAX engine."""
    config, capacity = checkpoint.config, len(prompt) + max_tokens
    sizes = resolve(options, config)
    if backend == "reference":
        cache = decoding.kv_scheme().cache(config, min(capacity + sizes.block, config.context))
        arithmetic = decoding.arithmetic(tally)
        model = reference_block_model(checkpoint.weights, config, options, capacity, cache, arithmetic)
        return block_diffusion(prompt, config, model, max_tokens, options)
    check_limits(prompt, config, max_tokens)  # before programs are compiled
    return xla.decode_blocks(
        xla_engine(checkpoint, capacity + sizes.block, decoding),
        prompt,
        max_tokens,
        decoding.way(config),
        decoding.confidence,
        block=sizes.block,
        sub_block=sizes.sub_block,
        max_passes=options.max_passes,
        mask=sizes.mask,
    )


def _decided(
    done: "Diffused | XlaDiffused", decoding: Decoding, options: Diffusion, config: ModelConfig, facts: Facts
) -> Iterator[Made]:
    """All tokens at once: a block's tokens are known only at its end."""
    sizes = resolve(options, config)
    facts |= {
        "threshold": None if facts["decode"] == "greedy" else decoding.confidence,
        "block_size": sizes.block,
        "sub_block_size": sizes.sub_block,
        "max_passes": options.max_passes,
        "defects": sorted(options.defects),
        "forwards": done.forwards,
        "commits": done.commits,
        "tokens_per_forward": round(done.tokens_per_forward, 4),
        "forwards_per_block": list(done.forwards_per_block),
        "read": done.read,
        "order": done.order,
    }
    tokens: list[int | None] = [*done.tokens] or [None]
    return iter([*(Made(token, None) for token in tokens[:-1]), Made(tokens[-1], done.reason)])


def _measured(made: Iterator[Made], rules: list[SparsityRule], tally: "Tally", facts: Facts) -> Iterator[Made]:
    """The same tokens; after the last one the measured sparsity is added to the facts."""
    yield from made
    if rules:
        named = [{"rule": rule.name, **vars(rule)} for rule in rules]
        measured = {place: round(tally.sparsity(place), 6) for place in tally.of}
        facts["sparsity"] = {"rules": named, "measured": measured}


def xla_engine(checkpoint: Checkpoint, capacity: int, decoding: Decoding, sequences: int = 1) -> "XlaEngine":
    """The JAX engine with the chosen KV cache. Raises MissingDependencyError without JAX."""
    with printing.progress() as say:
        return xla.open_engine(
            checkpoint, capacity, decoding.kv_scheme().name, say, sequences, measure=True, devices=decoding.devices
        )
