"""The options of ``run`` that say how to decode: each of them, what a server's file adds, and what contradicts what."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tritgold_conformance.commands.named import Chosen, Named

if TYPE_CHECKING:
    from tritgold.config import ModelConfig
    from tritgold.decode.diffusion_options import Diffusion
    from tritgold.decode.sampling import Sampling
    from tritgold.kv_cache.base import KvScheme
    from tritgold.layers.arithmetic import Arithmetic
    from tritgold.sparsity.base import SparsityRule, Tally
    from tritgold_conformance.server_config import ServerConfig

F = TypeVar("F", bound=Callable[..., Any])

# "ar" and the presets of tritgold.decode.diffusion_presets, and the names of its defects; neither module is imported
# for --help, and a test compares them.
DECODE = (
    "ar", "fast-dllm-v2", "fast-dllm-v2-dual", "greedy", "iterative", "adaptive", "small-block", "llada", "dream"
)  # fmt: skip
DEFECTS = (
    "no-commit", "stale-prefix", "overwritten-prompt", "whole-blocks", "past-stop", "short-prompt", "mask-predicted",
    "compact-feed", "lost-block", "shared-refresh",
)  # fmt: skip
# Options that only block diffusion has, by the field that holds them.
_OF_BLOCKS = {
    "threshold": "--threshold",
    "block_size": "--block-size",
    "sub_block_size": "--sub-block-size",
    "mask_token_id": "--mask-token-id",
    "max_passes": "--max-passes",
    "defect": "--defect",
}


@dataclass(frozen=True)
class Decoding:
    """What the user says of decoding; None and empty where nothing is said.

    kv_cache, sparsity: names and options, of the registries ``kv_scheme`` and ``sparsity_rule``. The last five are the
    fields of ``Sampling``.
    """

    decode: str | None = None
    threshold: float | None = None
    block_size: int | None = None
    sub_block_size: int | None = None
    mask_token_id: int | None = None
    max_passes: int | None = None
    defect: tuple[str, ...] = ()
    kv_cache: Chosen | None = None
    sparsity: tuple[Chosen, ...] = ()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def filled(self, server: "ServerConfig") -> "Decoding":
        """What was not said, from a server's file and its defaults, as far as the way to decode uses it."""
        from tritgold.decode.diffusion_presets import preset

        way = self.decode or server.mode
        more: dict[str, Any] = {"decode": way}
        if way != "ar":
            options = preset(way)
            more |= {"block_size": server["dlm.block_size"], "mask_token_id": server["dlm.mask_token_id"]}
            if way != "greedy":
                more["threshold"] = server["dlm.threshold"]
            if options.sub_block is not None:
                more["sub_block_size"] = server["dlm.small_block_size"]
            elif options.max_passes is not None and way != "greedy":
                more["max_passes"] = server["dlm.max_iterations_per_block"]
        return replace(self, **{field: value for field, value in more.items() if getattr(self, field) is None})

    def way(self, config: "ModelConfig") -> str:
        """One of DECODE: the one asked for, or the one that the model was trained for."""
        return self.decode or ("ar" if config.block is None else "fast-dllm-v2")

    def sampling(self) -> "Sampling":
        """Raises ConfigError (``sampling-option``)."""
        from tritgold.decode.sampling import Sampling

        return Sampling(**{field.name: getattr(self, field.name) for field in fields(Sampling)})

    def diffusion(self, config: "ModelConfig") -> "Diffusion | None":
        """The options of block diffusion, certain to suit the model; None for a token a pass.

        Raises click.UsageError for options that the way to decode has not, ConfigError as ``resolve`` does, and
        (``mask-id``) for a mask that is not the model's own.
        """
        from tritgold.decode.diffusion_options import Defect, resolve
        from tritgold.decode.diffusion_presets import THRESHOLD, preset
        from tritgold.errors import ConfigError

        way = self.way(config)
        given = [option for field, option in _OF_BLOCKS.items() if getattr(self, field) not in (None, ())]
        if way == "ar":
            if given:
                raise click.UsageError(f"{', '.join(given)}: for block diffusion, with kjv-dlm for example")
            return None
        if way == "greedy" and (self.threshold is not None or self.max_passes is not None):
            raise click.UsageError(
                "--decode greedy decides a block in one pass; it has no threshold, and no other passes"
            )
        if self.mask_token_id is not None and config.mask not in (None, self.mask_token_id):
            raise ConfigError(
                "is not the model's own",
                kind="mask-id",
                thing="mask",
                got=self.mask_token_id,
                expected=f"{config.mask}, as the model's configuration says",
            )
        sizes = {
            "block": self.block_size,
            "sub_block": self.sub_block_size,
            "mask": self.mask_token_id,
            "max_passes": self.max_passes,
        }
        options = preset(
            way,
            THRESHOLD if self.threshold is None else self.threshold,
            sampling=self.sampling(),
            defects=frozenset(map(Defect, self.defect)),
            **{field: size for field, size in sizes.items() if size is not None},
        )
        resolve(options, config)
        return options

    def kv_scheme(self) -> "KvScheme":
        """How keys and values are kept; exactly, where nothing is said. Raises ConfigError as the registry does."""
        from tritgold.kv_cache.kv_scheme import kv_scheme

        name, options = self.kv_cache or ("f32", {})
        return kv_scheme(name, **options)

    def rules(self) -> "list[SparsityRule]":
        """Sparsity rules: one for activations, one for attention, zero_skipping, in any order.

        Raises ConfigError as the registry does, and ``sparsity-conflict`` for two of one kind, of which the second
        would count what the first has left.
        """
        from tritgold.errors import ConfigError
        from tritgold.sparsity.activation import ActivationRule
        from tritgold.sparsity.attention import AttentionRule
        from tritgold.sparsity.rules import sparsity_rule

        rules = [sparsity_rule(name, **options) for name, options in self.sparsity]
        for kind in (ActivationRule, AttentionRule):
            same = [rule.name for rule in rules if isinstance(rule, kind)]
            if len(same) > 1:
                hint = "give one rule for activations and one for attention"
                got = ", ".join(same)
                raise ConfigError("two rules for one thing", kind="sparsity-conflict", got=got, hint=hint)
        return rules

    def arithmetic(self, tally: "Tally") -> "Arithmetic":
        """The golden arithmetic with the sparsity rules in it, counting into ``tally``."""
        from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC

        made = GOLDEN_ARITHMETIC
        for rule in self.rules():
            made = rule.arithmetic(made, tally)
        return made


def decoding_options(function: F) -> F:
    """The options of ``Decoding``, handed to the command as ``decoding``."""

    @functools.wraps(function)
    def with_decoding(*args: Any, **given: Any) -> Any:
        decoding = Decoding(**{field.name: given.pop(field.name) for field in fields(Decoding)})
        return function(*args, decoding=decoding, **given)

    wrapped: Any = with_decoding
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


_OPTIONS = (
    click.option(
        "--decode", type=click.Choice(DECODE), help="ar: a token a pass; the others: ways of block diffusion."
    ),
    click.option(
        "--threshold", type=click.FloatRange(0, 1), help="Confidence that decides a token; 1: a token a pass."
    ),
    click.option("--block-size", type=click.IntRange(1), help="Tokens of a block, instead of the model's own number."),
    click.option(
        "--sub-block-size", "--small-block-size", type=click.IntRange(1), help="Tokens of a group within a block."
    ),
    click.option("--mask-token-id", type=click.IntRange(0), help="The mask, for a model that does not say."),
    click.option("--max-passes", type=click.IntRange(1), help="Of a block; then the surest predictions fill it."),
    click.option("--defect", type=click.Choice(DEFECTS), multiple=True, help="Decode wrongly, as a known engine does."),
    click.option("--kv-cache", type=Named(), help="How keys and values are kept: q8_0, kivi2:window=64 ...; else f32."),
    click.option(
        "--sparsity", type=Named(), multiple=True, help="A rule that leaves something out: top_k:keep=0.7 ..."
    ),
    click.option("--temperature", default=0.0, show_default=True, help="0: the likeliest token."),
    click.option("--top-k", default=0, show_default=True, help="Draw from the k likeliest; 0: from all."),
    click.option("--top-p", default=1.0, show_default=True, help="Draw from the likeliest that make up p."),
    click.option("--repetition-penalty", default=1.0, show_default=True, help="For tokens that have occurred."),
    click.option("--seed", default=0, show_default=True, help="Of the draws; the same tokens on every machine."),
)
