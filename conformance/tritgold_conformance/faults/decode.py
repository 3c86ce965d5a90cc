"""Faults of the decode loop: the switches of the block-diffusion engine and of the batch server, and of sampling."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tritgold.decode.diffusion_options import Defect
from tritgold.decode.server_defects import ServerDefect
from tritgold_conformance.faults.fault import Change, Fault, Subject, Witness


def switched(**switches: Any) -> Change:
    """Switches of ``Subject.decoding``. Sets of defects are joined with those that are on already."""

    def change(s: Subject) -> Subject:
        decoding: dict[str, Any] = dict(s.decoding)
        for name, value in switches.items():
            before = decoding.get(name)
            decoding[name] = before | value if isinstance(before, frozenset | Mapping) else value
        return replace(s, decoding=decoding)

    return change


def _diffusion(defect: Defect) -> Change:
    return switched(diffusion_defects=frozenset([defect]))


def _server(defect: ServerDefect) -> Change:
    return switched(server_defects=frozenset([defect]))


_SHOWN = Witness("generated", "diffusing")
_SERVERS = "a causal block-diffusion server"

FAULTS = (
    Fault(
        "token-shift-missing", "decode", "A masked token is predicted by its own position, not by the one before.",
        "blocks of commas and repeated words",
        switched(diffusion={"shift": False}), _SHOWN, ("Fast-dLLM v2",),
    ),
    Fault(
        "threshold-reached-is-enough", "decode", "A probability of exactly the threshold decides a token.",
        "a pass fewer now and then; nothing, until a probability is the threshold",
        switched(inclusive=True), _SHOWN, ("Fast-dLLM v1",),
    ),
    Fault(
        "no-commit", "decode", "What a block's last pass decided stays in the cache as the masks it read.",
        "each block forgets part of the one before",
        _diffusion(Defect.NO_COMMIT), _SHOWN, (_SERVERS,),
    ),
    Fault(
        "stale-mask-keys", "decode", "Keys are kept that were computed while the token was still a mask.",
        "text drifts within a block",
        _diffusion(Defect.STALE_PREFIX), _SHOWN, (_SERVERS,),
    ),
    Fault(
        "prompt-overwritten", "decode", "The first token is read at the prompt's last position.",
        "the last word of the prompt is not heard",
        _diffusion(Defect.OVERWRITTEN_PROMPT), _SHOWN, (_SERVERS,),
    ),
    Fault(
        "stops-after-whole-blocks", "decode", "max_tokens is looked at between blocks only: up to a block too many.",
        "more tokens than were asked for",
        _diffusion(Defect.WHOLE_BLOCKS), _SHOWN, (_SERVERS,),
    ),
    Fault(
        "past-the-stop", "decode", "What stands in the block behind an end of sequence is put out.",
        "text behind the end",
        _diffusion(Defect.PAST_STOP), _SHOWN, (_SERVERS,),
    ),
    Fault(
        "short-prompts-only", "decode", "Of a prompt only two blocks are read, and then nothing comes.",
        "long prompts are answered with nothing",
        _diffusion(Defect.SHORT_PROMPT), _SHOWN, (_SERVERS,),
    ),
    Fault(
        "mask-in-the-output", "decode", "The mask is a prediction like any other.",
        "mask tokens in the text, or a block that never ends",
        _diffusion(Defect.MASK_PREDICTED), _SHOWN, ("Fast-dLLM v2",),
    ),
    Fault(
        "compact-feed", "decode", "Decided tokens of a sub-block are not read again, ever.",
        "later tokens do not know the earlier ones of their sub-block",
        _diffusion(Defect.COMPACT_FEED), _SHOWN, (_SERVERS,),
    ),
    Fault(
        "block-long-prompt-lost", "decode", "A prompt of exactly one block is not read.",
        "prompts of just that length are ignored",
        _diffusion(Defect.LOST_BLOCK), _SHOWN, ("Fast-dLLM v2",),
    ),
    Fault(
        "chunks-give-tokens", "decode", "Each chunk of the prompt gives a token, not only the last.",
        "tokens that continue the middle of the prompt",
        _server(ServerDefect.CHUNK_TOKENS), _SHOWN, ("a batch server's scheduler",),
    ),
    Fault(
        "positions-jump", "decode", "Positions advance twice a generated token.",
        "right for one token, then drift",
        _server(ServerDefect.POSITION_JUMPS), _SHOWN, ("a batch server's scheduler",),
    ),
    Fault(
        "last-token-read-twice", "decode", "A prompt that is all in the cache has its last token read once more.",
        "the second request of a text differs from the first",
        _server(ServerDefect.REPEATED_TOKEN), _SHOWN, ("a batch server's prefix cache",),
    ),
    Fault(
        "key-missing-from-cache", "decode", "The last cached token was generated and never read: it has no key.",
        "follow-up requests forget one token",
        _server(ServerDefect.MISSING_KEY), _SHOWN, ("a batch server's prefix cache",),
    ),
    Fault(
        "eos-ignored", "decode", "The end of sequence does not end the text.", "never stops",
        switched(eos_ignored=True), _SHOWN, ("ikawrakow/ik_llama.cpp #339", "microsoft/BitNet #126"),
    ),
    Fault(
        "one-token-too-many", "decode", "max_tokens counts from 0: one token more comes.", "one token more",
        switched(extra_tokens=1), _SHOWN,
    ),
    Fault(
        "top-p-drops-the-crossing-token", "decode", "The token with which the probabilities pass p is left out.",
        "less variety than p says",
        switched(crossing_dropped=True), _SHOWN,
    ),
    Fault(
        "temperature-behind-top-p", "decode", "top-p is applied to the probabilities of temperature 1.",
        "more variety at low temperatures, less at high ones",
        switched(temperature_last=True), _SHOWN,
    ),
    Fault(
        "penalty-divides-always", "decode", "The repetition penalty divides negative logits too, which raises them.",
        "words with negative logits are repeated more, not less",
        switched(penalty_divides=True), _SHOWN,
    ),
    Fault(
        "padded-ids-chosen", "decode", "Ids that only pad the vocabulary, with logits of 0, may be chosen.",
        "an invalid id where all real logits are negative",
        switched(padded=True), _SHOWN, ("mirage-project/mirage #751",),
    ),
)  # fmt: skip
