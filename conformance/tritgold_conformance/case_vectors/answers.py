"""The answer of the golden model, or of a golden model with a fault, to a case: one function for both.

So the expected answer and the answer of each fault are computed in the same way.
"""

import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.errors import TritgoldError, TritgoldWarning
from tritgold.formats.container import FLOAT_BYTES
from tritgold.formats.gguf_split import open_gguf
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.safetensors_file import SafetensorsFile
from tritgold.kv_cache.base import Side, Sizes
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.kv_cache.token_rows import TokenScheme
from tritgold_conformance.case_vectors.cases_files import layout_of
from tritgold_conformance.case_vectors.draft import Draft
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.packing import FORMATS

Arrays = dict[str, np.ndarray]
Parameters = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Answer:
    """arrays: by role. texts: for cases about texts. refused: the kind of the error, empty without an error."""

    arrays: Arrays = field(default_factory=dict)
    texts: list[str] | None = None
    refused: str = ""


def answer(mutant: Mutant, draft: Draft) -> Answer:
    """The mutant's answer. A TritgoldError counts as an answer; other exceptions are raised."""
    try:
        if draft.kind in _OPERATIONS:
            return Answer(_OPERATIONS[draft.kind](mutant, dict(draft.inputs), draft.parameters))
        found = _KINDS[draft.kind](mutant, draft)
    except TritgoldError as error:
        return Answer(refused=error.kind)
    return found if isinstance(found, Answer) else Answer(found)


# ---- files -------------------------------------------------------------------------------------------------------


def _unpack(mutant: Mutant, draft: Draft) -> Arrays:
    data, shape = draft.inputs["data"].tobytes(), tuple(draft.parameters["shape"])
    layout = layout_of(draft.parameters)
    name = _fault_format(layout)
    found = mutant.unpack(name, data, shape) if mutant.unpack and name else None
    if found is None:
        tensor = layout.unpack(data, shape, warn=False)
        return {"trits": tensor.trits, "scale": tensor.scale}
    # A fault gives trit x scale: it is divided by the right scale, so that a wrong scale shows as a wrong trit.
    scale = layout.scales(data, shape)
    wide = scale if scale.ndim == 0 else np.repeat(scale, shape[1] // scale.shape[1], axis=1)
    return {"trits": np.rint(found / wide).astype(np.int8), "scale": scale}


def _fault_format(layout: Packing) -> str | None:
    """The name that the faults use for a layout; None if they have none."""
    same = (n for n, known in FORMATS.items() if type(known) is type(layout) and vars(known) == vars(layout))
    return next(same, None)


def _open(_: Mutant, draft: Draft) -> Arrays:
    assert draft.file is not None
    name, raw = draft.file
    with tempfile.TemporaryDirectory(prefix="tritgold-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", TritgoldWarning)  # an alignment of 24 is legal and unusual
        path = Path(folder) / name
        path.write_bytes(raw)
        opened = open_gguf(path) if draft.parameters["container"] == "gguf" else SafetensorsFile(path)
        return {
            tensor.name: (tensor.floats() if tensor.dtype in FLOAT_BYTES else tensor.data).copy()
            for tensor in opened.tensors.values()
            if tensor.data.size
        }


# ---- operations --------------------------------------------------------------------------------------------------


def _bit_linear(s: Mutant, i: Arrays, p: Parameters) -> Arrays:
    acc = s.arithmetic.accumulate(i["codes"], i["trits"])
    return {"acc": acc, "out": s.arithmetic.apply_scales(acc, i["scale"], i["weight_scale"], p["scale_rule"])}


def _linear(s: Mutant, i: Arrays, p: Parameters) -> Arrays:
    quantized = dict(zip(("codes", "scale"), s.arithmetic.quantize(i["x"]), strict=True))
    return quantized | _bit_linear(s, {**i, **quantized}, p)


def _rope(s: Mutant, i: Arrays, p: Parameters) -> Arrays:
    table = s.arithmetic.rotation_table(i["positions"], i["x"].shape[2], p["theta"])
    return {"x": s.arithmetic.rotate(i["x"], table)}


# Mutant, inputs, parameters -> outputs.
_OPERATIONS: dict[str, Callable[[Mutant, Arrays, Parameters], Arrays]] = {
    "quantize": lambda s, i, _: dict(zip(("codes", "scale"), s.arithmetic.quantize(i["x"]), strict=True)),
    "bit_linear": _bit_linear,
    "linear": _linear,
    "rms_norm": lambda s, i, p: {"x": s.arithmetic.rms_norm(i["x"], i["gain"], p["eps"])},
    "rope": _rope,
    "softmax": lambda s, i, p: {"x": s.arithmetic.softmax_weights(i["q"], i["k"], start=p["start"])},
    "mix": lambda s, i, _: {"x": s.arithmetic.mix_values(i["probs"], i["v"])},
    "ffn_activation": lambda s, i, p: {"x": s.arithmetic.gated_activation(i["gate"], i["up"], p["activation"])},
    "add": lambda _, i, p: {"x": i["a"] + i["b"]},
}


def _kv(_: Mutant, d: Draft) -> Arrays:
    """Keys and values as read back after the last chunk, and the rows of bytes of schemes that have them."""
    inputs, p = d.inputs, d.parameters
    scheme, (tokens, heads, width) = kv_scheme(p["scheme"], **p["options"]), inputs["k"].shape
    cache = scheme.cache(Sizes(1, heads, width), tokens)
    read: Arrays = {}
    for count in p["chunks"]:
        part = slice(cache.length, cache.length + count)
        read = dict(zip("kv", cache.append(0, inputs["k"][part], inputs["v"][part]), strict=True))
        cache.advance(count)
    if isinstance(scheme, TokenScheme) and scheme.first is None:
        read |= {"k_bytes": scheme.store(inputs["k"], 0, "k"), "v_bytes": scheme.store(inputs["v"], 0, "v")}
    return read


def _kv_load(_: Mutant, d: Draft) -> Arrays:
    p = d.parameters
    scheme, shape = kv_scheme(p["scheme"], **p["options"]), Sizes(1, p["kv_heads"], p["head_dim"])
    assert isinstance(scheme, TokenScheme)
    sides: tuple[Side, Side] = ("k", "v")
    return {side: scheme.load(d.inputs[f"{side}_bytes"], shape, 0, side) for side in sides}


# ---- models, decode loops, tokenizers ----------------------------------------------------------------------------


def _operation(s: Mutant, d: Draft) -> Arrays:
    return FaultyEngine(s, capacity=1).operation(d.parameters["operation"], dict(d.inputs))


def _logits(s: Mutant, d: Draft) -> Arrays:
    tokens, engine = d.parameters["tokens"], FaultyEngine(s, capacity=len(d.parameters["tokens"]))
    rows, at = [], 0
    for count in d.parameters["chunks"]:
        rows.append(engine.prefill(tokens[at : at + count]))
        at += count
    return {"logits": np.concatenate(rows)}


def _asked(method: str) -> Callable[[Mutant, Draft], Answer]:
    def asked(s: Mutant, d: Draft) -> Answer:
        found: Any = getattr(FaultyEngine(s, capacity=1), method)(*d.parameters.values())
        if method == "stream":
            return Answer(texts=list(found))
        return Answer({"ids": np.asarray(list(found), np.int64)})

    return asked


_KINDS: dict[str, Callable[[Mutant, Draft], Answer | Arrays]] = {
    "unpack": _unpack,
    "open": _open,
    "kv": _kv,
    "kv_load": _kv_load,
    "operation": _operation,
    "logits": _logits,
    **{method: _asked(method) for method in ("generate", "serve", "diffuse", "encode", "chat", "stream")},
}
