"""How a mutant generates: the reference's own decode loops, with the switches of ``Mutant.decoding``."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import Diffusion, resolve
from tritgold.decode.diffusion_presets import preset
from tritgold.decode.sampling import Sampling, candidates, choose
from tritgold.decode.server_defects import served
from tritgold.decode.unmasking import Rule, Thresholds
from tritgold.errors import ConfigError
from tritgold.layers.arithmetic import Arithmetic
from tritgold.model import forward
from tritgold.ternary import DenseMatrix
from tritgold_conformance.faults.fault import Mutant

PAD = 64  # vocabularies are padded to a multiple of this


Options = Mapping[str, Any]


def generate(s: Mutant, prompt: list[int], max_tokens: int, options: Options) -> list[int]:
    """Generate one token after the other, up to the first end of sequence or max_tokens.

    options: the fields of ``Sampling``; ``stop``: ids instead of the model's EOS; ``logit_bias``: id as text, or
    ``all`` -> number that is added to the logit.
    """
    w, c, switches = s.checkpoint.weights, s.config, s.decoding
    sampling = Sampling(**{k: v for k, v in options.items() if k not in ("stop", "logit_bias")})
    wanted = max_tokens + switches.get("extra_tokens", 0)
    cache = s.new_cache(c, len(prompt) + wanted)
    stop = () if switches.get("eos_ignored") else options.get("stop", c.eos)
    read, text, generated = list(prompt), list(prompt), list[int]()
    while len(generated) < wanted:
        logits = forward(read, w, c, cache, last_only=True, arithmetic=_biased(s, options))[-1]
        token = _chosen(logits, sampling, text, switches)
        generated.append(token)
        if token in stop or token >= c.vocab:
            break
        read, text = [token], [*text, token]
    return generated


def _biased(s: Mutant, options: Options) -> Arithmetic:
    bias: Options = options.get("logit_bias", {})
    if not bias:
        return s.arithmetic

    def logits(x: np.ndarray, head: DenseMatrix) -> np.ndarray:
        found = s.arithmetic.logits(x, head) + np.float32(bias.get("all", 0))
        for token, value in bias.items():
            if token != "all":
                found[:, int(token)] += np.float32(value)
        return found.astype(np.float32)

    return replace(s.arithmetic, logits=logits)


def _chosen(logits: np.ndarray, sampling: Sampling, text: list[int], switches: Any) -> int:
    if switches.get("padded"):
        logits = np.concatenate([logits, np.zeros(PAD - len(logits) % PAD, logits.dtype)])
    if switches.get("penalty_divides") and sampling.repetition_penalty != 1:
        seen = np.unique(np.asarray(text))
        logits = logits.astype(np.float64)
        logits[seen] /= sampling.repetition_penalty
        sampling = replace(sampling, repetition_penalty=1.0)
    if switches.get("temperature_last") and sampling.temperature:
        kept, _ = candidates(logits, replace(sampling, temperature=1.0), text)
        return _among(logits, kept, replace(sampling, top_k=0, top_p=1.0), text)
    if switches.get("crossing_dropped") and sampling.temperature:
        kept, _ = candidates(logits, sampling, text)
        return _among(logits, kept[: max(1, len(kept) - 1)], replace(sampling, top_k=0, top_p=1.0), text)
    return choose(logits, sampling, text)


def _among(logits: np.ndarray, kept: np.ndarray, sampling: Sampling, text: list[int]) -> int:
    only = np.full(len(logits), -np.inf)
    only[kept] = logits[kept]
    return choose(only, sampling, text)


def diffuse(s: Mutant, prompt: list[int], max_tokens: int, options: Options, rule: Rule | None = None) -> list[int]:
    """Generate by block diffusion. Defects that do not apply with these options are left out.

    options: ``decode``, the name of a preset; ``threshold``, ``sub_block``; ``stop`` and ``logit_bias`` as in
    ``generate``. rule: replaces the preset's.
    """
    switches = s.decoding
    changes = {k: v for k, v in options.items() if k not in ("decode", "stop", "logit_bias")}
    how = preset(options["decode"], **changes)
    how = replace(how, rule=rule or how.rule)
    if switches.get("inclusive") and isinstance(how.rule, Thresholds):
        how = replace(how, rule=replace(how.rule, inclusive=True))
    how = replace(how, **switches.get("diffusion", {}))
    for defect in sorted(switches.get("diffusion_defects", ())):
        with_it = replace(how, defects=how.defects | {defect})
        how = with_it if _fits(with_it, s) else how
    c = replace(s.config, eos=tuple(options.get("stop", s.config.eos)))
    capacity = len(prompt) + max_tokens + (c.block or 0)
    model = reference_block_model(s.checkpoint.weights, c, how, capacity, arithmetic=_biased(s, options))
    return list(block_diffusion(prompt, c, model, max_tokens, how).tokens)


def _fits(options: Diffusion, s: Mutant) -> bool:
    try:
        resolve(options, s.config)
    except ConfigError:
        return False
    return True


def serve(s: Mutant, prompt: list[int], max_tokens: int, options: Options) -> list[int]:
    """Generate greedily like a batch server: the prompt in chunks of ``chunk``, its first ``cached`` tokens cached."""
    defects = s.decoding.get("server_defects", ())
    w, c = s.checkpoint.weights, s.config
    return served(prompt, w, c, max_tokens, defects, options["chunk"], options["cached"])
