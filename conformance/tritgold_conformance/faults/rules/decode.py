"""Faults of the decode loop: the switches of the block-diffusion engine and of the batch server, and of sampling."""

from collections.abc import Callable
from typing import Any

from tritgold.decode.diffusion_options import Defect
from tritgold.decode.server_defects import ServerDefect
from tritgold_conformance.faults.fault import GENERATED, Mutation
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import decoding


def generates(**switches: Any) -> Callable[[Callable[[], None]], Mutation]:
    """Of a docstring: some switches of ``generating``."""
    return lambda page: lambda s: decoding(s, **switches)


def diffuses(defect: Defect) -> Callable[[Callable[[], None]], Mutation]:
    """Of a docstring: a defect of the block-diffusion engine."""
    return generates(diffusion_defects=frozenset([defect]))


def serves(defect: ServerDefect) -> Callable[[Callable[[], None]], Mutation]:
    """Of a docstring: a defect of the batch server."""
    return generates(server_defects=frozenset([defect]))


@known_fault(GENERATED, generates(diffusion={"shift": False}))
def token_shift_missing() -> None:
    """A masked token is predicted by its own position, not by the one before.

    Looks like: blocks of commas and repeated words
    Seen in: Fast-dLLM v2"""


@known_fault(GENERATED, generates(inclusive=True))
def threshold_reached_is_enough() -> None:
    """A probability of exactly the threshold decides a token.

    Looks like: a pass fewer now and then; nothing, until a probability is the threshold
    Seen in: Fast-dLLM v1"""


@known_fault(GENERATED, diffuses(Defect.NO_COMMIT))
def no_commit() -> None:
    """What a block's last pass decided stays in the cache as the masks it read.

    Looks like: each block forgets part of the one before
    Seen in: a causal block-diffusion server"""


@known_fault(GENERATED, diffuses(Defect.STALE_PREFIX))
def stale_mask_keys() -> None:
    """Keys are kept that were computed while the token was still a mask.

    Looks like: text drifts within a block
    Seen in: a causal block-diffusion server"""


@known_fault(GENERATED, diffuses(Defect.OVERWRITTEN_PROMPT))
def prompt_overwritten() -> None:
    """The first token is read at the prompt's last position.

    Looks like: the last word of the prompt is not heard
    Seen in: a causal block-diffusion server"""


@known_fault(GENERATED, diffuses(Defect.WHOLE_BLOCKS))
def stops_after_whole_blocks() -> None:
    """max_tokens is looked at between blocks only: up to a block too many.

    Looks like: more tokens than were asked for
    Seen in: a causal block-diffusion server"""


@known_fault(GENERATED, diffuses(Defect.PAST_STOP))
def past_the_stop() -> None:
    """What a block has after an end of sequence is emitted.

    Looks like: text after the end
    Seen in: a causal block-diffusion server"""


@known_fault(GENERATED, diffuses(Defect.SHORT_PROMPT))
def short_prompts_only() -> None:
    """Of a prompt only two blocks are read, and then nothing comes.

    Looks like: long prompts are answered with nothing
    Seen in: a causal block-diffusion server"""


@known_fault(GENERATED, diffuses(Defect.MASK_PREDICTED))
def mask_in_the_output() -> None:
    """The mask is a prediction like any other.

    Looks like: mask tokens in the text, or a block that never ends
    Seen in: Fast-dLLM v2"""


@known_fault(GENERATED, diffuses(Defect.COMPACT_FEED))
def compact_feed() -> None:
    """Decided tokens of a sub-block are not read again, ever.

    Looks like: later tokens do not know the earlier ones of their sub-block
    Seen in: a causal block-diffusion server"""


@known_fault(GENERATED, diffuses(Defect.LOST_BLOCK))
def block_long_prompt_lost() -> None:
    """A prompt of exactly one block is not read.

    Looks like: prompts of just that length are ignored
    Seen in: Fast-dLLM v2"""


@known_fault(GENERATED, serves(ServerDefect.CHUNK_TOKENS))
def chunks_give_tokens() -> None:
    """Each chunk of the prompt gives a token, not only the last.

    Looks like: tokens that continue the middle of the prompt
    Seen in: a batch server's scheduler"""


@known_fault(GENERATED, serves(ServerDefect.POSITION_JUMPS))
def positions_jump() -> None:
    """Positions advance twice a generated token.

    Looks like: right for one token, then drift
    Seen in: a batch server's scheduler"""


@known_fault(GENERATED, serves(ServerDefect.REPEATED_TOKEN))
def last_token_read_twice() -> None:
    """A prompt that is all in the cache has its last token read once more.

    Looks like: the second request of a text differs from the first
    Seen in: a batch server's prefix cache"""


@known_fault(GENERATED, serves(ServerDefect.MISSING_KEY))
def key_missing_from_cache() -> None:
    """The last cached token was generated and never read: it has no key.

    Looks like: follow-up requests forget one token
    Seen in: a batch server's prefix cache"""


@known_fault(GENERATED, generates(eos_ignored=True))
def eos_ignored() -> None:
    """The end of sequence does not end the text.

    Looks like: never stops
    Seen in: ikawrakow/ik_llama.cpp #339; microsoft/BitNet #126"""


@known_fault(GENERATED, generates(extra_tokens=1))
def one_token_too_many() -> None:
    """max_tokens counts from 0: one token more comes.

    Looks like: one token more"""


@known_fault(GENERATED, generates(crossing_dropped=True))
def top_p_drops_the_crossing_token() -> None:
    """The token with which the probabilities pass p is left out.

    Looks like: less variety than p says"""


@known_fault(GENERATED, generates(temperature_last=True))
def temperature_after_top_p() -> None:
    """top-p is applied to the probabilities of temperature 1.

    Looks like: more variety at low temperatures, less at high ones"""


@known_fault(GENERATED, generates(penalty_divides=True))
def penalty_divides_always() -> None:
    """The repetition penalty divides negative logits too, which raises them.

    Looks like: words with negative logits are repeated more, not less"""


@known_fault(GENERATED, generates(padded=True))
def padded_ids_chosen() -> None:
    """Ids that only pad the vocabulary, with logits of 0, may be chosen.

    Looks like: an invalid id where all real logits are negative
    Seen in: mirage-project/mirage #751"""
