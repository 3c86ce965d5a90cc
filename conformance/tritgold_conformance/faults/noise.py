"""Float32 noise: a right engine whose roundings are its own. Never a fault, and breaks ties as real engines do."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tritgold.counter_random import random_bits
from tritgold_conformance.faults.fault import Subject, output

ONE_ROUNDING, SUMS = 6e-8, 3e-7  # relative: of single operations; of norms, softmax, the mix and the head
_SUMMED = ("_norm", ".probs", ".attn_mix", "logits")


def noisy(subject: Subject, seed: int, times: float = 1.0) -> Subject:
    """The subject with every float output moved at random within what float32 does to it, another way for each seed.

    times: of the size of that noise. Integers stay as they are; codes follow from their noisy inputs.
    """
    calls = [0]

    def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        if value.dtype != np.float32 or name.endswith((".codes", ".acc")) or name == "embedding":
            return None
        calls[0] += 1
        index = np.arange(1, value.size + 1, dtype=np.uint64) + np.uint64(calls[0] << 32)
        bits = random_bits(seed, index) >> np.uint64(40)
        uniform = bits.astype(np.float64) * 2.0**-23 - 1.0
        size = times * (SUMS if name.endswith(_SUMMED) else ONE_ROUNDING)
        with np.errstate(invalid="ignore", over="ignore"):
            return (value * (1 + size * uniform.reshape(value.shape))).astype(np.float32)

    made = output(lambda s: alter)(subject)
    assert made is not None
    return replace(made, names=(*subject.names, f"noise {seed}"))
