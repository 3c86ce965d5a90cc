"""A subject: one small sound checkpoint, and how its files are hurt."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from small_models import HfModel, bf16_entry

Damage = Callable[[random.Random], dict[str, bytes]]
VOCAB = 8


@dataclass(frozen=True)
class Subject:
    """name: of the command line. share: of the cases, in parts of the whole. files: name -> bytes of the sound
    checkpoint. opened: the file that is opened, "" for their folder. damage: a generator's numbers -> the files that
    change.
    """

    name: str
    share: int
    files: dict[str, bytes]
    opened: str
    damage: Damage


def short(model: HfModel, vocab: int = VOCAB) -> HfModel:
    """A vocabulary of a few tokens, so that a case is a few kilobytes."""
    model.config |= {"vocab_size": vocab, "bos_token_id": 1, "eos_token_id": 2}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in model.entries:
            width = model.config["hidden_size"]
            rows = np.resize(model.floats(name), (vocab, width))
            model.entries[name] = bf16_entry(rows)
    return model
