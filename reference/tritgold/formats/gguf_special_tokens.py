"""Special tokens in GGUF metadata: BOS, EOS, and the mask and block of a diffusion model.

Two keys are ours, because GGUF has none for them:

- ``tritgold.block_size``: tokens of a diffusion block; the mask is then ``tokenizer.ggml.mask_token_id``, which
  without the block only means that the vocabulary has such a token;
- ``tritgold.eos_token_ids``: all end-of-sequence ids in order, if the three keys of ggml cannot express them.
"""

from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tritgold.errors import ConfigError
from tritgold.formats.special_tokens import inside
from tritgold.formats.untrusted_text import printable

BOS_KEY, MASK_KEY = "tokenizer.ggml.bos_token_id", "tokenizer.ggml.mask_token_id"
# Each of them ends a text in llama.cpp: end of sequence, of a turn, of a message.
EOS_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
BLOCK_KEY, ALL_EOS_KEY = "tritgold.block_size", "tritgold.eos_token_ids"


def special_tokens(path: Path, metadata: dict[str, Any], vocab: int) -> dict[str, Any]:
    """bos, eos, mask and block as fields of ModelConfig; bos and eos outside the vocabulary are left out.

    Raises ConfigError for a value of a wrong type, and for a block without a mask.
    """

    def take(key: str) -> int | None:
        value = metadata.get(key)
        if value is not None and type(value) is not int:
            refuse(path, key, "has the wrong type", repr(value), "int")
        return value

    eos = [token for key in EOS_KEYS if (token := take(key)) is not None]
    listed = metadata.get(ALL_EOS_KEY)
    if listed is not None:
        if not isinstance(listed, np.ndarray) or listed.dtype.kind not in "iu":
            refuse(path, ALL_EOS_KEY, "has the wrong type", repr(listed), "an array of integers")
        eos = listed.tolist()
    else:
        eos = list(dict.fromkeys(eos))  # published files repeat one id under two keys; a list of ours stays as it is
    bos, block = take(BOS_KEY), take(BLOCK_KEY)
    mask = take(MASK_KEY)
    if block is not None and mask is None:
        refuse(path, MASK_KEY, f"is missing beside {BLOCK_KEY}", None, "a token id")
    return {
        "bos": next(iter(inside(path, BOS_KEY, [] if bos is None else [bos], vocab)), None),
        "eos": inside(path, EOS_KEYS[0] if listed is None else ALL_EOS_KEY, eos, vocab),
        "block": block,
        "mask": None if block is None else mask,
    }


def refuse(
    path: Path,
    key: str,
    message: str,
    got: object,
    expected: object,
    nearest: list[str] | None = None,
    kind: str = "config-value",
    hint: str | None = None,
) -> NoReturn:
    """Raise a ConfigError about a metadata key. nearest: names like the one found, most likely first."""
    hint = f"the nearest is {nearest[0]!r}" if nearest else hint
    thing, got = printable(f"key {key!r}"), None if got is None else printable(got)
    raise ConfigError(message, kind=kind, file=path, thing=thing, got=got, expected=expected, hint=hint)
