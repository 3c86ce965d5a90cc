"""The decoding options of ``run``: their combination with a server's file, and checks for contradictions."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click

from tritgold.config import ModelConfig
from tritgold.decode.diffusion_options import Defect, Diffusion, resolve
from tritgold.decode.diffusion_presets import PRESETS, preset
from tritgold.decode.sampling import GREEDY, Sampling
from tritgold.errors import ConfigError
from tritgold.kv_cache.base import KvScheme
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.options import THRESHOLD
from tritgold.sparsity.activation import ActivationRule
from tritgold.sparsity.attention import AttentionRule
from tritgold.sparsity.base import SparsityRule, Tally
from tritgold.sparsity.rules import sparsity_rule
from tritgold_conformance.commands.decoding_options import DEFECTS
from tritgold_conformance.commands.options import Chosen
from tritgold_conformance.commands.server_config import ServerConfig

# Field -> option, for options that only block diffusion has.
_OF_BLOCKS = {
    "threshold": "--threshold",
    "block_size": "--block-size",
    "sub_block_size": "--sub-block-size",
    "mask_token_id": "--mask-token-id",
    "max_passes": "--max-passes",
}
# Kind of a ``resolve`` error about a size -> the field of that size.
_FIELD_OF = {
    "mask-id": "mask_token_id",
    "block": "block_size",
    "sub-block": "sub_block_size",
    "max-passes": "max_passes",
}


@dataclass(frozen=True)
class Decoding:
    """The decoding options; None or empty if not given.

    kv_cache, sparsity: names and options in the registries ``kv_scheme`` and ``sparsity_rule``. temperature to
    text_ids: the fields of ``Sampling``; text_ids comes from the tokenizer. devices: of the JAX engine. max_sequences,
    chunk, radix_cache: of a batch server. file, from_file: a server's configuration, and the fields taken from it.
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
    text_ids: int = 0
    devices: int = 1
    max_sequences: int | None = None
    chunk: int | None = None
    radix_cache: bool | None = None
    file: Path | None = None
    from_file: frozenset[str] = frozenset()

    def filled(self, server: ServerConfig, config: ModelConfig) -> "tuple[Decoding, tuple[str, ...]]":
        """The options, completed from a server's file and its defaults, as far as the decode mode uses them.

        Also the keys of the file that are not used. If the file gives no block size, the model's own takes
        precedence over the server's default.
        """
        way = self.decode or server.mode
        keys: dict[str, str] = {}
        if way != "ar":
            options = preset(way)
            keys = {"block_size": "dlm.block_size", "mask_token_id": "dlm.mask_token_id"}
            if way != "greedy":
                keys["threshold"] = "dlm.threshold"
            if options.sub_block is not None:
                keys["sub_block_size"] = "dlm.small_block_size"
            elif options.max_passes is not None and way != "greedy":
                keys["max_passes"] = "dlm.max_iterations_per_block"
        more: dict[str, Any] = {"decode": way, **{field: server[key] for field, key in keys.items()}}
        if config.block is not None and "dlm.block_size" not in server.given:
            more["block_size"] = None
        more = {field: value for field, value in more.items() if getattr(self, field) is None}
        used = {*keys.values(), "dlm.decode_mode"}
        idle = tuple(key for key in server.given if key.startswith("dlm.") and key not in used)
        said = frozenset(field for field in more if keys.get(field) in server.given)
        return replace(self, **more, file=server.file, from_file=said), (*idle, *server.unused)

    def way(self, config: ModelConfig) -> str:
        """One of DECODE: the given one, or the one that the model was trained for."""
        return self.decode or ("ar" if config.block is None else "fast-dllm-v2")

    @property
    def confidence(self) -> float:
        """The threshold, THRESHOLD if not given."""
        return THRESHOLD if self.threshold is None else self.threshold

    def sampling(self) -> Sampling:
        """Raises click.UsageError for options without effect, ConfigError (``sampling-option``) for invalid values."""
        drawn = ("top_k", "top_p", "seed")
        idle = [name for name in drawn if getattr(self, name) != getattr(GREEDY, name)]
        if self.temperature == 0 and idle:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in idle)
            raise click.UsageError(f"{options}: nothing is drawn at --temperature 0; give a higher --temperature")
        return Sampling(**{field.name: getattr(self, field.name) for field in fields(Sampling)})

    def diffusion(self, config: ModelConfig) -> Diffusion | None:
        """The options of block diffusion, checked against the model; None for autoregressive decoding.

        Raises click.UsageError for options that the decode mode does not have, ConfigError as ``resolve`` does, and
        (``mask-id``) for a mask that is not the model's own; the error names the file if the wrong value comes from it.
        """
        way = self.way(config)
        given = [option for field, option in _OF_BLOCKS.items() if getattr(self, field) is not None]
        of_blocks = [name for name in self.defect if name in DEFECTS]
        if way == "ar":
            if given := [*given, *(f"--defect {name}" for name in of_blocks)]:
                raise click.UsageError(f"{', '.join(given)}: only for block diffusion, with kjv-dlm for example")
            return None
        if len(of_blocks) < len(self.defect):
            wrong = ", ".join(name for name in self.defect if name not in DEFECTS)
            raise click.UsageError(
                f"--defect {wrong}: a defect of servers that decode one token per pass; it needs --decode ar"
            )
        try:
            return self._diffusion(way, config)
        except ConfigError as error:
            raise error.located(file=self.file if _FIELD_OF.get(error.kind) in self.from_file else None) from None

    def _diffusion(self, way: str, config: ModelConfig) -> Diffusion:
        if way == "greedy":
            for field in ("threshold", "max_passes"):
                if getattr(self, field) is not None:
                    raise click.UsageError(
                        f"{_OF_BLOCKS[field]}: greedy decides a block in one pass, without a threshold"
                    )
        self._check_passes(way, config)
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
            self.confidence,
            sampling=self.sampling(),
            defects=frozenset(map(Defect, self.defect)),
            **{field: size for field, size in sizes.items() if size is not None},
        )
        resolve(options, config)
        return options

    def _check_passes(self, way: str, config: ModelConfig) -> None:
        """Refuse --max-passes, which limits the passes of a block, together with sub-blocks, which have no limit."""
        plain, block = preset(way), self.block_size or config.block
        sub_block = self.sub_block_size or plain.sub_block
        limited = self.max_passes is not None or plain.max_passes is not None
        if not limited or sub_block in (None, block):
            return
        if plain.max_passes is not None:
            ways = ", ".join(name for name in PRESETS if preset(name).max_passes is None)
            raise click.UsageError(f"--sub-block-size: {way} decides whole blocks; --decode with sub-blocks: {ways}")
        ways = ", ".join(name for name in PRESETS if preset(name).max_passes is not None and name != "greedy")
        hint = f"--sub-block-size {block}" if block else "a sub-block as large as the block"
        raise click.UsageError(f"--max-passes: {way} has no limit except with {hint}; --decode with one: {ways}")

    def kv_scheme(self) -> KvScheme:
        """The KV cache scheme, f32 (exact) by default. Raises ConfigError as the registry does."""
        name, options = self.kv_cache or ("f32", {})
        return kv_scheme(name, **options)

    def rules(self) -> list[SparsityRule]:
        """Sparsity rules: at most one for activations and one for attention, and zero_skipping, in any order.

        Raises ConfigError as the registry does, and ``sparsity-conflict`` for two of one kind, because the second
        would count only values that the first has left.
        """
        rules = [sparsity_rule(name, **options) for name, options in self.sparsity]
        for kind in (ActivationRule, AttentionRule):
            same = [rule.name for rule in rules if isinstance(rule, kind)]
            if len(same) > 1:
                hint = "give one rule for activations and one for attention"
                got = ", ".join(same)
                raise ConfigError("two rules for one thing", kind="sparsity-conflict", got=got, hint=hint)
        return rules

    def arithmetic(self, tally: Tally) -> Arithmetic:
        """The golden arithmetic with the sparsity rules, which count into ``tally``."""
        made = GOLDEN_ARITHMETIC
        for rule in self.rules():
            made = rule.arithmetic(made, tally)
        return made
