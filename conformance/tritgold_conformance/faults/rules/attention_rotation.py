"""Faults of attention: how q and k are rotated by their positions."""

import numpy as np

from tritgold.formats.rope_rows import interleaved_rows
from tritgold.ternary import TernaryTensor
from tritgold_conformance.faults.fault import OPERATIONS, STEPS, Mutant, Witness
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import linears, replaces, with_arithmetic, with_config, with_positions

AREA = "attention"
Table = tuple[np.ndarray, np.ndarray]  # sin, cos: float64 [tokens, head_dim / 2]


@known_fault(OPERATIONS, invisible_on=("position-0",))
def rope_missing(s: Mutant) -> Mutant:
    """q and k are not rotated.

    Looks like: position 0 right, word order lost"""
    return with_positions(s, np.zeros_like)


@known_fault(OPERATIONS, invisible_on=("position-0",))
@replaces("rotate")
def rope_interleaved(x: np.ndarray, table: Table) -> np.ndarray:
    """Neighbours are rotated together, where the model has halves.

    Looks like: position 0 exact, all others diverge
    Seen in: kvark/meganeura #38"""
    sin, cos = (t[:, None, :] for t in table)
    turned = np.empty(x.shape, np.float64)
    even, odd = x[..., ::2].astype(np.float64), x[..., 1::2].astype(np.float64)
    turned[..., ::2], turned[..., 1::2] = even * cos - odd * sin, odd * cos + even * sin
    return turned.astype(np.float32)


@known_fault(Witness("operations", "seeded"), invisible_on=("position-0",))
def rope_theta_1e4(s: Mutant) -> Mutant | None:
    """theta is 10,000, whatever the model says.

    Looks like: short texts nearly right, long ones not
    Seen in: 1bit-MONSTER/1bit-MONSTER #1728"""
    return with_config(s, rope_theta=1e4)


@known_fault(OPERATIONS, invisible_on=("position-0",))
def rope_theta_5e5(s: Mutant) -> Mutant | None:
    """theta is 500,000, whatever the model says.

    Looks like: short texts nearly right, long ones not"""
    return with_config(s, rope_theta=5e5)


@known_fault(OPERATIONS, invisible_on=("logits",))
def rope_off_by_one(s: Mutant) -> Mutant:
    """Positions begin at 1.

    Looks like: nothing in the text: only differences of positions reach a score"""
    return with_positions(s, lambda p: p + 1)


@known_fault(OPERATIONS, invisible_on=("position-0",))
def rope_backwards(s: Mutant) -> Mutant:
    """Rotated by the angle with the other sign.

    Looks like: position 0 right; the difference of two positions counts with the wrong sign"""
    return with_arithmetic(s, rotate=lambda x, table: s.arithmetic.rotate(x, (-table[0], table[1])))


@known_fault(OPERATIONS, invisible_on=("position-0",))
def rope_on_half_the_head(s: Mutant) -> Mutant:
    """Only the first half of the pairs is rotated.

    Looks like: position 0 right; long distances blurred"""

    def rotate(x: np.ndarray, table: Table) -> np.ndarray:
        sin, cos = (t.copy() for t in table)
        sin[:, sin.shape[1] // 2 :], cos[:, cos.shape[1] // 2 :] = 0.0, 1.0
        return s.arithmetic.rotate(x, (sin, cos))

    return with_arithmetic(s, rotate=rotate)


@known_fault(STEPS, invisible_on=("prefill",))
def rope_frozen(s: Mutant) -> Mutant:
    """Each pass counts its positions from 0.

    Looks like: a prompt in one piece is right, what is generated turns to babble"""
    return with_positions(s, lambda p: p - p[:1])


@known_fault(OPERATIONS)
def qk_rows_permuted(s: Mutant) -> Mutant | None:
    """Rows of q and k are in the order of interleaved RoPE, and are not put back in order.

    Looks like: one container right, the other not; histograms equal
    Seen in: ooples/AiDotNet #2074; ggml-org/llama.cpp #22611"""

    def change(name: str, t: TernaryTensor) -> TernaryTensor:
        if name not in "qk":
            return t
        return TernaryTensor(t.trits[np.argsort(interleaved_rows(t.shape[0], s.config.head_dim))], t.scale)

    return linears(s, change)
