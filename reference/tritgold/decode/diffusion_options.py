"""The parameters of block diffusion, and the defects of known engines as switches.

The defaults are right. A switch makes the engine wrong in one known way, so that a wrong output can be recognised:
whatever differs from the golden text and equals it with a switch has that defect.
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
    """What engines do wrong. Causal servers: D1 to D7 of one engine, and compact-feed; the rest: Fast-dLLM v2."""

    NO_COMMIT = "no-commit"  # D1: what a block's last pass decided stays in the cache as the masks it read
    STALE_PREFIX = "stale-prefix"  # D2: keys are kept that were computed while the token was still a mask
    OVERWRITTEN_PROMPT = "overwritten-prompt"  # D3: the first token is read at the prompt's last position
    WHOLE_BLOCKS = "whole-blocks"  # D4: max_tokens is looked at between blocks only
    PAST_STOP = "past-stop"  # D5: what stands in the block after an end of sequence is emitted
    SHORT_PROMPT = "short-prompt"  # D6: of a prompt only two blocks are read, and then nothing ever comes
    MASK_PREDICTED = "mask-predicted"  # D7: the mask is a prediction like any other
    COMPACT_FEED = "compact-feed"  # the small-block mode: decided tokens of a sub-block are not read again, ever
    LOST_BLOCK = "lost-block"  # a prompt of exactly one block is not read
    SHARED_REFRESH = "shared-refresh"  # in a batch, one sequence's need of a whole-block pass is everybody's


@dataclass(frozen=True)
class Diffusion:
    """How blocks of masked tokens become text.

    attention: a token sees ``block``: its own block of absolute positions and all before it; ``causal``: what is before
        it; ``full``: everything, masks of blocks to come included.
    block, sub_block: tokens that are masked together, and of these the groups that are decided left to right. block
        None: the model's own; sub_block None: the whole block.
    rule: which tokens a pass decides.
    cache: ``none``: each pass reads the whole text; ``prefix``: keys and values of what is before the block are kept;
        ``dual``: also of the rest of the block (v2), or of what is after it (v1). The first two are exact except with
        full attention, where what is kept is as old as the block's first pass. Dual is approximate except with causal
        attention, where it leaves out what is not seen.
    commit: how a finished block gets into the cache: ``pass``: by a pass of its own, which predicts the next block's
        first token; ``merged``: by the next block's first pass (causal attention); ``none``: it needs not (full).
    shift: a token is predicted by the position before it; else by its own.
    token_ties, position_ties: which of equal logits, which of equally sure positions.
    max_passes: a block's; then what is still masked becomes the surest prediction that any pass made of it.
    noise, sampling: at temperatures above 0, see ``predictions``. ``first``: only a token from the prefill is drawn.
    confidence: ``exact``, or by the fast exponential of some engines.
    mask: the id; None: the model's own.
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
    """The sizes, after every check that needs no prompt.

    Raises ConfigError as ``Sizes.of`` does, and ``diffusion-option`` for an unknown value, options that contradict
    each other, and a defect that these options have no place for.
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
    # Its first pass over a block is needed for all of the text, and predicts the block's first token alone.
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
