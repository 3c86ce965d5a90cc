"""A model that says what a script says, and remembers what it was given to read."""

from typing import NamedTuple

import numpy as np

from tritgold.config import ModelConfig

EOS, MASK, M = 62, 63, 63
CONFIG = ModelConfig(
    vocab=64, hidden=8, inter=12, layers=1, heads=2, kv_heads=1, head_dim=4, context=16, norm_eps=1e-5,
    rope_theta=1e4, activation="relu2", sub_norms=True, tied_head=True, scale_rule="multiply", eos=(EOS,),
    mask=MASK, block=4,
)  # fmt: skip


class Call(NamedTuple):
    """What the model was given. start: position of the first token. keep: no mask was among them."""

    start: int
    tokens: list[int]
    keep: bool


class Scripted:
    """A model that says a token for each position, in the row before it; remembers what it was given to read.

    At position p it says 10 + p, and 40 + p in a pass without masks: so a token shows the row and the pass it is from.
    script: position -> (token, n) says another, as likely as the n - 1 ids after it: its probability is 1 / n,
    exactly for n = 1, 2 and 4. The mask is likelier than all of them, everywhere.
    """

    def __init__(self, script: dict[int, tuple[int, int]] | None = None) -> None:
        self.script, self.kept, self.calls = script or {}, 0, list[Call]()

    def __call__(self, tokens: list[int], start: int, end: int, rows: list[int]) -> np.ndarray:
        assert end == start + len(tokens)
        keep = MASK not in tokens
        self.calls.append(Call(start, list(tokens), keep))
        logits = np.full((len(rows), 64), -1e4, np.float32)
        for n, row in enumerate(rows):
            at = start + row + 1
            token, equals = self.script.get(at, (at + (40 if keep else 10), 1))
            logits[n, token : token + equals] = 5
        logits[:, MASK] = 9
        self.kept = end if keep else self.kept
        return logits
