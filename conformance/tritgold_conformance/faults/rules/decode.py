"""Faults of the decode loop: the switches of the block-diffusion engine and of the batch server, and of sampling."""

from tritgold.decode.diffusion_options import Defect
from tritgold.decode.server_defects import ServerDefect
from tritgold_conformance.faults.fault import GENERATED, Mutant
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import decoding


@known_fault(GENERATED)
def token_shift_missing(s: Mutant) -> Mutant:
    """A masked token is predicted by its own position, not by the one before.

    Looks like: blocks of commas and repeated words
    Seen in: Fast-dLLM v2"""
    return decoding(s, diffusion={"shift": False})


@known_fault(GENERATED)
def threshold_reached_is_enough(s: Mutant) -> Mutant:
    """A probability of exactly the threshold decides a token.

    Looks like: a pass fewer now and then; nothing, until a probability is the threshold
    Seen in: Fast-dLLM v1"""
    return decoding(s, inclusive=True)


@known_fault(GENERATED)
def no_commit(s: Mutant) -> Mutant:
    """What a block's last pass decided stays in the cache as the masks it read.

    Looks like: each block forgets part of the one before
    Seen in: a causal block-diffusion server"""
    return decoding(s, diffusion_defects=frozenset([Defect.NO_COMMIT]))


@known_fault(GENERATED)
def stale_mask_keys(s: Mutant) -> Mutant:
    """Keys are kept that were computed while the token was still a mask.

    Looks like: text drifts within a block
    Seen in: a causal block-diffusion server"""
    return decoding(s, diffusion_defects=frozenset([Defect.STALE_PREFIX]))


@known_fault(GENERATED)
def prompt_overwritten(s: Mutant) -> Mutant:
    """The first token is read at the prompt's last position.

    Looks like: the last word of the prompt is not heard
    Seen in: a causal block-diffusion server"""
    return decoding(s, diffusion_defects=frozenset([Defect.OVERWRITTEN_PROMPT]))


@known_fault(GENERATED)
def stops_after_whole_blocks(s: Mutant) -> Mutant:
    """max_tokens is looked at between blocks only: up to a block too many.

    Looks like: more tokens than were asked for
    Seen in: a causal block-diffusion server"""
    return decoding(s, diffusion_defects=frozenset([Defect.WHOLE_BLOCKS]))


@known_fault(GENERATED)
def past_the_stop(s: Mutant) -> Mutant:
    """What a block has after an end of sequence is emitted.

    Looks like: text after the end
    Seen in: a causal block-diffusion server"""
    return decoding(s, diffusion_defects=frozenset([Defect.PAST_STOP]))


@known_fault(GENERATED)
def short_prompts_only(s: Mutant) -> Mutant:
    """Of a prompt only two blocks are read, and then nothing comes.

    Looks like: long prompts are answered with nothing
    Seen in: a causal block-diffusion server"""
    return decoding(s, diffusion_defects=frozenset([Defect.SHORT_PROMPT]))


@known_fault(GENERATED)
def mask_in_the_output(s: Mutant) -> Mutant:
    """The mask is a prediction like any other.

    Looks like: mask tokens in the text, or a block that never ends
    Seen in: Fast-dLLM v2"""
    return decoding(s, diffusion_defects=frozenset([Defect.MASK_PREDICTED]))


@known_fault(GENERATED)
def compact_feed(s: Mutant) -> Mutant:
    """Decided tokens of a sub-block are not read again, ever.

    Looks like: later tokens do not know the earlier ones of their sub-block
    Seen in: a causal block-diffusion server"""
    return decoding(s, diffusion_defects=frozenset([Defect.COMPACT_FEED]))


@known_fault(GENERATED)
def block_long_prompt_lost(s: Mutant) -> Mutant:
    """A prompt of exactly one block is not read.

    Looks like: prompts of just that length are ignored
    Seen in: Fast-dLLM v2"""
    return decoding(s, diffusion_defects=frozenset([Defect.LOST_BLOCK]))


@known_fault(GENERATED)
def chunks_give_tokens(s: Mutant) -> Mutant:
    """Each chunk of the prompt gives a token, not only the last.

    Looks like: tokens that continue the middle of the prompt
    Seen in: a batch server's scheduler"""
    return decoding(s, server_defects=frozenset([ServerDefect.CHUNK_TOKENS]))


@known_fault(GENERATED)
def positions_jump(s: Mutant) -> Mutant:
    """Positions advance twice a generated token.

    Looks like: right for one token, then drift
    Seen in: a batch server's scheduler"""
    return decoding(s, server_defects=frozenset([ServerDefect.POSITION_JUMPS]))


@known_fault(GENERATED)
def last_token_read_twice(s: Mutant) -> Mutant:
    """A prompt that is all in the cache has its last token read once more.

    Looks like: the second request of a text differs from the first
    Seen in: a batch server's prefix cache"""
    return decoding(s, server_defects=frozenset([ServerDefect.REPEATED_TOKEN]))


@known_fault(GENERATED)
def key_missing_from_cache(s: Mutant) -> Mutant:
    """The last cached token was generated and never read: it has no key.

    Looks like: follow-up requests forget one token
    Seen in: a batch server's prefix cache"""
    return decoding(s, server_defects=frozenset([ServerDefect.MISSING_KEY]))


@known_fault(GENERATED)
def eos_ignored(s: Mutant) -> Mutant:
    """The end of sequence does not end the text.

    Looks like: never stops
    Seen in: ikawrakow/ik_llama.cpp #339; microsoft/BitNet #126"""
    return decoding(s, eos_ignored=True)


@known_fault(GENERATED)
def one_token_too_many(s: Mutant) -> Mutant:
    """max_tokens counts from 0: one token more comes.

    Looks like: one token more"""
    return decoding(s, extra_tokens=1)


@known_fault(GENERATED)
def top_p_drops_the_crossing_token(s: Mutant) -> Mutant:
    """The token with which the probabilities pass p is left out.

    Looks like: less variety than p says"""
    return decoding(s, crossing_dropped=True)


@known_fault(GENERATED)
def temperature_behind_top_p(s: Mutant) -> Mutant:
    """top-p is applied to the probabilities of temperature 1.

    Looks like: more variety at low temperatures, less at high ones"""
    return decoding(s, temperature_last=True)


@known_fault(GENERATED)
def penalty_divides_always(s: Mutant) -> Mutant:
    """The repetition penalty divides negative logits too, which raises them.

    Looks like: words with negative logits are repeated more, not less"""
    return decoding(s, penalty_divides=True)


@known_fault(GENERATED)
def padded_ids_chosen(s: Mutant) -> Mutant:
    """Ids that only pad the vocabulary, with logits of 0, may be chosen.

    Looks like: an invalid id where all real logits are negative
    Seen in: mirage-project/mirage #751"""
    return decoding(s, padded=True)
