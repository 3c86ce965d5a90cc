"""Policy: the precision that an engine declares, by name, for example ``kv-f16+logits-bf16``.

A policy changes the golden model in two ways. It *rounds* where the policy says; the result is compared with the
engine. And it *perturbs*: the effect of an engine's own roundings is not known to the last bit, so the golden model is
run again with every value changed at random by as much as the declared precision allows, and the change of an output
is the tolerance there. All bounds are derived from the model, the text and the policy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from tritgold.errors import EngineError
from tritgold.layers.arithmetic import Arithmetic
from tritgold.trace_names import TraceName
from tritgold_conformance.policies.attention import with_flash, without_flash
from tritgold_conformance.policies.heads import perturbed_head
from tritgold_conformance.policies.roundings import Noise, Rounding, bf16, f16, stored

Area = Literal["arithmetic", "activations", "cache", "head", "logits"]
AREAS: tuple[Area, ...] = get_args(Area)
FLOAT32_MOVES = 3e-7  # relative change of each value, and of its row's largest, by the sums of a float32 engine
ROUNDINGS = 2.0  # random roundings in one operation of a bfloat16 or float16 engine


@dataclass(frozen=True)
class Part:
    """One declared rounding.

    what: a description. rounds: adds the rounding to an arithmetic. unit: half the spacing at 1 of bfloat16 or
    float16. step: of a cache, the change of a stored number at a rounding tie, relative to the largest of its head.
    logits: how far a returned logit may be off, relative to itself. head: a key of ``heads.BLOCKS``.
    """

    name: str
    area: Area
    what: str
    rounds: Callable[[Arithmetic], Arithmetic] = lambda arithmetic: arithmetic
    unit: float = 0.0
    step: float = 0.0
    logits: float = 0.0
    head: str = ""


def _everywhere(rounded: Rounding) -> Callable[[Arithmetic], Arithmetic]:
    """Rounds every output but codes, their sums and their scales: some engines keep these in float32."""

    def rounds(arithmetic: Arithmetic) -> Arithmetic:
        before = arithmetic.alter

        def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray:
            value = value if before is None else before(name, value, seen)
            return rounded(value) if value.dtype == np.float32 and TraceName.of(name).role in ("", "out") else value

        return replace(arithmetic, alter=alter)

    return rounds


def _cache(scheme: str) -> Callable[[Arithmetic], Arithmetic]:
    """Attention reads all keys and values, also those of the same pass, as a cache of this scheme returns them."""
    keys, values = stored(scheme, "k"), stored(scheme, "v")

    def rounds(arithmetic: Arithmetic) -> Arithmetic:
        softmax, mix = arithmetic.softmax_weights, arithmetic.mix_values

        def softmax_weights(q: np.ndarray, k: np.ndarray, *more: int, **named: int) -> np.ndarray:
            return softmax(q, keys(k), *more, **named)

        def mix_values(weights: np.ndarray, v: np.ndarray) -> np.ndarray:
            return mix(weights, values(v))

        return replace(arithmetic, softmax_weights=softmax_weights, mix_values=mix_values)

    return rounds


def _weights_only(arithmetic: Arithmetic) -> Arithmetic:
    """Activations are not quantised: codes are the values, their scale is 1."""

    def quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x, np.ones(len(x), np.float32)

    def accumulate(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
        return (codes.astype(np.float64) @ trits.T.astype(np.float64)).astype(np.float32)

    def apply_scales(acc: np.ndarray, scale: np.ndarray, weight_scale: np.ndarray, rule: str) -> np.ndarray:
        scales = weight_scale.reshape(-1)
        return (acc * scales if rule == "multiply" else acc / scales).astype(np.float32)

    return replace(arithmetic, quantize=quantize, accumulate=accumulate, apply_scales=apply_scales)


_LISTED = (
    Part("bf16", "arithmetic", "each operation's output is rounded to bfloat16", _everywhere(bf16), 2**-8),
    Part("f16", "arithmetic", "each operation's output is rounded to float16", _everywhere(f16), 2**-11),
    Part("weights-only", "activations", "activations are not quantised: float times trits", _weights_only),
    Part("kv-f16", "cache", "keys and values are kept in float16", _cache("f16")),
    Part("kv-bf16", "cache", "keys and values are kept in bfloat16", _cache("bf16")),
    Part("kv-fp8_e4m3", "cache", "keys and values are kept in FP8 E4M3, scale 1", _cache("fp8_e4m3"), step=2**-3),
    Part("kv-fp8_e5m2", "cache", "keys and values are kept in FP8 E5M2, scale 1", _cache("fp8_e5m2"), step=2**-2),
    Part("kv-int8", "cache", "keys and values are kept in int8, scaled by head", _cache("int8"), step=1 / 127),
    Part("kv-q8_0", "cache", "keys and values are kept in Q8_0, blocks of 32", _cache("q8_0"), step=1 / 127),
    Part("attention-f16", "cache", "attention in float16, its sums too: llama.cpp's default on a CPU", with_flash,
         unit=2**-11),
    Part("head-q8_0", "head", "the head is Q8_0, and what it multiplies is rounded to 8 bits by blocks of 32",
         head="q8_0"),
    Part("head-q6_k", "head", "the head is Q6_K, and what it multiplies is rounded to 8 bits by blocks of 256",
         head="q6_k"),
    Part("logits-f16", "logits", "logits are handed out in float16", logits=2**-11),
    Part("logits-bf16", "logits", "logits are handed out in bfloat16", logits=2**-8),
)  # fmt: skip
PARTS: dict[str, Part] = {part.name: part for part in _LISTED}


@dataclass(frozen=True)
class Policy:
    """Declared roundings, at most one for each area, in the order of AREAS. Empty: float32, like the golden model."""

    parts: tuple[Part, ...] = ()

    @property
    def name(self) -> str:
        """``float32``, or the names of the parts with + between them."""
        return "+".join(part.name for part in self.parts) or "float32"

    @property
    def unit(self) -> float:
        """Half the spacing at 1 of the arithmetic's numbers; 0 for float32."""
        return max((part.unit for part in self.parts if part.area == "arithmetic"), default=0.0)

    def of(self, area: Area) -> Part | None:
        """The part about this area."""
        return next((part for part in self.parts if part.area == area), None)

    @property
    def logits(self) -> float:
        """How far a returned logit may be off because it is rounded, relative to the largest."""
        part = self.of("logits")
        return part.logits if part else 0.0

    @property
    def followed(self) -> bool:
        """Whether an engine's values equal the golden ones up to float32 noise and followed rounding ties of codes.

        Otherwise too many roundings of the policy may go the other way to follow them: rows that are not equal up to
        noise may differ as much as those of ``perturbed``.
        """
        return all(part.area == "logits" for part in self.parts)

    @property
    def quantised(self) -> bool:
        """Whether activations are quantised."""
        return self.of("activations") is None

    def golden(self, arithmetic: Arithmetic) -> Arithmetic:
        """The arithmetic with the policy's roundings; the same value for the same arithmetic."""
        return _golden(self, arithmetic) if self.parts else arithmetic

    def perturbed(self, golden: Arithmetic, run: int) -> Arithmetic:
        """The arithmetic of ``golden``, with every value changed at random as much as this policy allows an engine."""
        if self.followed:
            return golden
        noise, before, quantize = Noise(run), golden.alter, golden.quantize
        moves = ROUNDINGS * self.unit

        def moved(value: np.ndarray) -> np.ndarray:
            by = value * (moves + FLOAT32_MOVES) * noise(value.shape)
            by += FLOAT32_MOVES * np.abs(value).max(axis=-1, keepdims=True, initial=0.0) * noise(value.shape)
            return np.where(value == 0, value, value + by).astype(np.float32)

        def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray:
            if value.dtype == np.float32 and TraceName.of(name).role != "codes" and name != "embedding":
                value = moved(value)
            return value if before is None else before(name, value, seen)

        def noisy_codes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            codes, scale = quantize(x)  # x * scale is rounded too: the largest may come to 127.99, and be -128
            return np.clip(np.rint(moved(x) * scale[:, None]), -128, 127).astype(codes.dtype), scale

        narrow = self.unit and self.quantised
        found = replace(golden, alter=alter, quantize=noisy_codes if narrow else quantize)
        cache, head = self.of("cache"), self.of("head")
        if cache is not None and cache.name == "attention-f16" and run % 2:
            plain = Arithmetic()
            found = without_flash(replace(found, softmax_weights=plain.softmax_weights, mix_values=plain.mix_values))
        return replace(found, logits=perturbed_head(found.logits, head.head, noise, run)) if head else found


@lru_cache(maxsize=64)
def _golden(policy: Policy, arithmetic: Arithmetic) -> Arithmetic:
    for part in policy.parts:
        arithmetic = part.rounds(arithmetic)
    return arithmetic


FLOAT32 = Policy()


def named_policy(name: str) -> Policy:
    """``float32``, or names of PARTS with + between them, in any order.

    Raises EngineError, kind ``engine-policy``, for a name that is not one of PARTS, or two of one area.

    >>> named_policy("logits-bf16+kv-f16").name, named_policy("float32").parts
    ('kv-f16+logits-bf16', ())
    """
    names = [] if name == FLOAT32.name else name.split("+")
    unknown = [part for part in names if part not in PARTS]
    if unknown:
        expected = f"{FLOAT32.name}, or with + between them: {', '.join(PARTS)}"
        raise EngineError("unknown policy", kind="engine-policy", got=repr(name), expected=expected)
    parts = sorted((PARTS[part] for part in names), key=lambda part: AREAS.index(part.area))
    areas = [part.area for part in parts]
    twice = next((area for area in areas if areas.count(area) > 1), None)
    if twice:
        what, expected = f"two policies for the {twice}", "one of each kind"
        raise EngineError(what, kind="engine-policy", got=repr(name), expected=expected)
    return Policy(tuple(parts))
