"""Faults of architectures: Gemma's gains and norms, and the constant factors of Gemma, Granite and MiniCPM."""

import math
from collections.abc import Mapping

import numpy as np

from tritgold.graph import operations
from tritgold.rounding import bf16_to_f32, f32_to_bf16
from tritgold.trace_names import TraceName
from tritgold_conformance.faults.fault import Mutant, Witness
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import altered, from_layer, with_arithmetic, with_config

AREA = "architecture"
_GEMMA, _GRANITE = (Witness("operations", name) for name in ("gemma", "granite"))
_POST = {"attn_post_norm": "o.out", "ffn_post_norm": "down.out"}


@known_fault(_GEMMA)
def gain_offset_missing(s: Mutant) -> Mutant | None:
    """Gains are taken as the file has them, which holds what is added to 1.

    Looks like: babble; activations too small, some of the other sign"""
    if not s.config.post_norms:
        return None
    right = s.arithmetic.rms_norm

    def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
        return right(x, gain - np.float32(1), eps)

    return with_arithmetic(s, rms_norm=rms_norm)


@known_fault(_GEMMA)
def post_norms_dropped(s: Mutant) -> Mutant | None:
    """What attention and FFN give is added without its norm.

    Looks like: the stream grows too fast or too slowly from layer to layer"""
    if not s.config.post_norms:
        return None

    def alter(name: str, _: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        source = _POST.get(TraceName.of(name).inner)
        return None if source is None else from_layer(seen, name, source)

    return altered(s, alter)


@known_fault(_GEMMA)
def post_norms_of_the_stream(s: Mutant) -> Mutant | None:
    """The norms after attention and FFN are of the stream with what was added, not of what is added.

    Looks like: the stream has one size in every layer"""
    if not s.config.post_norms:
        return None
    layers, eps = s.checkpoint.weights.layers, s.config.norm_eps

    def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        at = TraceName.of(name)
        if at.inner in _POST:
            return from_layer(seen, name, _POST[at.inner])
        if at.layer is None or at.inner not in ("attn_residual", "ffn_residual"):
            return None
        gain = getattr(layers[at.layer], at.inner.replace("residual", "post_norm"))
        return s.arithmetic.rms_norm(value, gain, eps)

    return altered(s, alter)


@known_fault(_GRANITE)
def embedding_scale_missing(s: Mutant) -> Mutant | None:
    """The embedding is not multiplied by its factor.

    Looks like: layers contribute too much beside the token itself"""
    return with_config(s, embedding_scale=1.0)


@known_fault(Witness("operations", "gemma"))
def embedding_scale_in_bf16(s: Mutant) -> Mutant | None:
    """The factor of the embedding is rounded to bfloat16, as training in it does.

    Looks like: every embedding off by one factor near 1
    Seen in: huggingface/transformers #29402"""
    rounded = bf16_to_f32(f32_to_bf16(np.array([s.config.embedding_scale], np.float32)))
    return with_config(s, embedding_scale=float(rounded[0]))


@known_fault(_GRANITE)
def residual_scale_missing(s: Mutant) -> Mutant | None:
    """What is added to the stream is not multiplied by its factor.

    Looks like: the stream grows too fast"""
    return with_config(s, residual_scale=1.0)


@known_fault(_GRANITE)
def residual_scale_not_shared_out(s: Mutant) -> Mutant | None:
    """``scale_depth`` is not divided by the root of the number of layers.

    Looks like: the stream grows too fast, the more the deeper the model"""
    if s.config.residual_scale == 1:
        return None
    return with_config(s, residual_scale=s.config.residual_scale * math.sqrt(s.config.layers))


@known_fault(_GRANITE)
def residual_scale_of_the_sum(s: Mutant) -> Mutant | None:
    """The stream is multiplied by the factor with what is added to it.

    Looks like: early layers and the token itself are forgotten"""
    factor, adding = s.config.residual_scale, {o.name: o.reads for o in operations(s.config) if o.kind == "add"}
    if factor == 1:
        return None

    def alter(name: str, _: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        if name not in adding:
            return None
        stream, branch = seen.get(adding[name]["a"]), seen.get(adding[name]["b"])
        return None if stream is None or branch is None else (stream + branch) * np.float32(factor)

    return altered(s, alter)


@known_fault(_GRANITE)
def logit_divisor_missing(s: Mutant) -> Mutant | None:
    """Logits are not divided.

    Looks like: the likeliest tokens right, and far too sure of them"""
    return with_config(s, logit_divisor=1.0)


@known_fault(_GRANITE)
def logit_divisor_multiplies(s: Mutant) -> Mutant | None:
    """Logits are multiplied by what divides them.

    Looks like: the likeliest tokens right, and far too sure of them"""
    return with_config(s, logit_divisor=1 / s.config.logit_divisor)
