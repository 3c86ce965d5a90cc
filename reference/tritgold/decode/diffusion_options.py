"""The parameters of block diffusion, and the defects of known engines as switches.

The defaults are correct. A switch makes the engine wrong in one known way, to recognise wrong outputs: an output that
differs from the golden text but equals the text with a switch has that defect.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, get_args

from tritgold.config import ModelConfig
from tritgold.decode.predictions import Confidence
from tritgold.decode.sampling import GREEDY, Sampling
from tritgold.decode.unmasking import CAREFUL, Rule
from tritgold.options import Attention, CachePolicy, Commit, Noise, Sizes, not_usable

Ties = Literal["first", "last"]


class Defect(StrEnum):
    """Known defects. Causal servers: D1 to D7 of one engine, and compact-feed; the other two: Fast-dLLM v2."""

    NO_COMMIT = "no-commit"  # D1: for tokens decided in a block's last pass the cache keeps the masks' keys and values
    STALE_PREFIX = "stale-prefix"  # D2: keys computed while the token was still a mask are kept
    OVERWRITTEN_PROMPT = "overwritten-prompt"  # D3: the first generated token is read at the prompt's last position
    WHOLE_BLOCKS = "whole-blocks"  # D4: max_tokens is checked only between blocks
    PAST_STOP = "past-stop"  # D5: the tokens after an end of sequence in the same block are emitted
    SHORT_PROMPT = "short-prompt"  # D6: only two blocks of a prompt are read, and then decoding never ends
    MASK_PREDICTED = "mask-predicted"  # D7: the mask can be predicted like any other token
    COMPACT_FEED = "compact-feed"  # small-block mode: decided tokens of a sub-block are never read again
    LOST_BLOCK = "lost-block"  # a prompt of exactly one block is not read
    SHARED_REFRESH = "shared-refresh"  # in a batch, if one sequence needs a whole-block pass, all make one


@dataclass(frozen=True)
class Diffusion:
    """How blocks of masked tokens become text.

    attention: what a token sees. ``block``: its block (by absolute position) and all earlier ones; ``causal``: earlier
        tokens; ``full``: everything, including the masks of later blocks.
    block, sub_block: number of tokens that are masked together, and of tokens in each group of them; groups are
        decided left to right. block None: the model's; sub_block None: the whole block.
    rule: which tokens a pass decides.
    cache: ``none``: each pass reads the whole text; ``prefix``: keys and values of the tokens before the block are
        kept; ``dual``: also those of the rest of the block (v2), or of the tokens after it (v1). ``none`` is exact, and
        so is ``prefix`` except with full attention, where the kept values are from the block's first pass. ``dual`` is
        approximate except with causal attention, where it only skips tokens that are not seen.
    commit: how a finished block gets into the cache. ``pass``: by an additional pass, which also predicts the next
        block's first token; ``merged``: by the next block's first pass (causal attention); ``none``: not at all (full).
    shift: whether a token is predicted by the position before it; otherwise by its own position.
    token_ties, position_ties: which of several equal logits, or equally probable positions, is taken.
    max_passes: of a block; after them each remaining mask becomes its most probable prediction in any pass.
    noise, sampling: for temperatures above 0, see ``predictions``. ``first``: only the token of the prefill is sampled.
    confidence: ``exact``, or computed with the fast exponential of some engines.
    mask: its id; None: the model's.
    """

    attention: Attention = "block"
    block: int | None = None
    sub_block: int | None = None
    rule: Rule = CAREFUL
    cache: CachePolicy = "prefix"
    commit: Commit = "pass"
    shift: bool = True
    token_ties: Ties = "first"
    position_ties: Ties = "first"
    max_passes: int | None = None
    noise: Noise = "none"
    sampling: Sampling = GREEDY
    confidence: Confidence = "exact"
    mask: int | None = None
    defects: frozenset[Defect] = frozenset()


def resolve(options: Diffusion, config: ModelConfig) -> Sizes:
    """The sizes, after all checks that need no prompt.

    Raises ConfigError as ``Sizes.of`` does, and ``diffusion-option`` for an unknown value, options that contradict
    each other, and a defect that is impossible with these options.
    """
    for name, known in (
        ("attention", Attention), ("cache", CachePolicy), ("commit", Commit), ("token_ties", Ties),
        ("position_ties", Ties), ("noise", Noise), ("confidence", Confidence),
    ):  # fmt: skip
        _check(getattr(options, name) in get_args(known), name, getattr(options, name), ", ".join(get_args(known)))
    for name, kind in (("shift", bool), ("rule", Rule), ("sampling", Sampling), ("defects", frozenset)):
        _check(isinstance(getattr(options, name), kind), name, getattr(options, name), f"a {kind.__name__}")
    sizes = Sizes.of(config, options.block, options.sub_block, options.mask, options.max_passes)
    _check_together(replace(options, sub_block=sizes.sub_block, block=sizes.block))
    return sizes


def _check_together(options: Diffusion) -> None:
    commits = {"block": ("pass",), "causal": ("pass", "merged"), "full": ("none",)}[options.attention]
    _check(options.commit in commits, "commit", options.commit, f"{' or '.join(commits)} with this attention")
    # The first pass over a block reads the whole text and predicts only the block's first token.
    first_only = options.attention == "full" and options.shift and options.cache != "none"
    _check(
        not first_only or options.max_passes != 1, "max_passes", 1, "2 or more with full attention, shift and a cache"
    )
    s = options.sampling
    _check(s.temperature == 0 or options.noise != "none", "temperature", s.temperature, "0, or some noise")
    _check(s.repetition_penalty == 1, "repetition_penalty", s.repetition_penalty, "1: block diffusion has none")
    if options.noise == "gumbel":
        _check(s.top_k == 0, "top_k", s.top_k, "0: Gumbel noise is for every token")
        _check(s.top_p == 1, "top_p", s.top_p, "1: Gumbel noise is for every token")
    found = f"{options.attention} attention, commit {options.commit}, cache {options.cache}"
    for defect in sorted(options.defects, key=str):
        _check(isinstance(defect, Defect), "defect", repr(defect), ", ".join(Defect))
        place, fits = _PLACES.get(defect, ("", lambda options: True))
        _check(fits(options), f"defect {defect}", found, place)


def _server(options: Diffusion) -> bool:
    return (options.attention, options.commit) == ("causal", "merged") and options.cache != "none"


_SERVER = "causal attention, commit merged and a cache: greedy, iterative, adaptive or small-block"
_PLACES: dict[Defect, tuple[str, Callable[[Diffusion], bool]]] = {
    Defect.NO_COMMIT: (_SERVER, _server),
    Defect.STALE_PREFIX: (_SERVER, _server),
    Defect.OVERWRITTEN_PROMPT: (_SERVER, _server),
    Defect.SHORT_PROMPT: (_SERVER, _server),
    Defect.COMPACT_FEED: (
        "causal attention, commit merged, cache dual: small-block",
        lambda o: _server(o) and o.cache == "dual",
    ),
    Defect.LOST_BLOCK: (
        "block attention and a cache: fast-dllm-v2 or fast-dllm-v2-dual",
        lambda o: o.attention == "block" and o.cache != "none",
    ),
    Defect.SHARED_REFRESH: (
        "block attention, cache dual: fast-dllm-v2-dual",
        lambda o: (o.attention, o.cache) == ("block", "dual"),
    ),
}


def _check(usable: bool, name: str, got: object, expected: str) -> None:
    if not usable:
        raise not_usable("diffusion-option", name, got, expected)
