"""What the golden model answers to a case, or the golden model with a fault: one function for both.

So what is expected, and what each fault would answer, cannot be computed in two ways.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.errors import TritgoldError
from tritgold.formats.container import FLOAT_BYTES, StoredTensor
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.safetensors_file import SafetensorsFile
from tritgold.kv_cache.base import Side, Sizes
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.kv_cache.token_rows import TokenScheme
from tritgold_conformance.case_vectors.cases_files import layout_of
from tritgold_conformance.case_vectors.draft import Draft
from tritgold_conformance.faults.fault import Subject
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.packing import FORMATS

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Answer:
    """arrays: by role. texts: where texts are asked for. refused: the kind of the error, empty where there is none."""

    arrays: Arrays = field(default_factory=dict)
    texts: list[str] | None = None
    refused: str = ""


def answer(subject: Subject, draft: Draft) -> Answer:
    """The subject's answer. A typed error is an answer too; anything else that is raised is not."""
    try:
        found = _KINDS[draft.kind](subject, draft)
    except TritgoldError as error:
        return Answer(refused=error.kind)
    return found if isinstance(found, Answer) else Answer(found)


# ---- files -------------------------------------------------------------------------------------------------------


def _unpack(subject: Subject, draft: Draft) -> Arrays:
    data, shape = draft.inputs["data"].tobytes(), tuple(draft.parameters["shape"])
    layout = layout_of(draft.parameters)
    name = _fault_format(layout)
    found = subject.unpack(name, data, shape) if subject.unpack and name else None
    if found is None:
        tensor = layout.unpack(data, shape, warn=False)
        return {"trits": tensor.trits, "scale": tensor.scale}
    # A fault says trit x scale: taken apart by the scale that is right, so that a wrong one shows as a wrong trit.
    scale = layout.scales(data, shape)
    wide = scale if scale.ndim == 0 else np.repeat(scale, shape[1] // scale.shape[1], axis=1)
    return {"trits": np.rint(found / wide).astype(np.int8), "scale": scale}


def _fault_format(layout: Packing) -> str | None:
    """The name by which the faults know a layout."""
    same = (n for n, known in FORMATS.items() if type(known) is type(layout) and vars(known) == vars(layout))
    return next(same, None)


def _open(_: Subject, draft: Draft) -> Arrays:
    assert draft.file is not None
    name, raw = draft.file
    with tempfile.TemporaryDirectory(prefix="tritgold-") as folder:
        path = Path(folder) / name
        path.write_bytes(raw)
        opened = GgufFile(path) if draft.parameters["container"] == "gguf" else SafetensorsFile(path)
        return {tensor.name: _values(tensor).copy() for tensor in opened.tensors.values() if tensor.data.size}


def _values(tensor: StoredTensor) -> np.ndarray:
    return tensor.floats() if tensor.dtype in FLOAT_BYTES else tensor.data


# ---- operations --------------------------------------------------------------------------------------------------


def _quantize(s: Subject, d: Draft) -> Arrays:
    codes, scale = s.arithmetic.quantize(d.inputs["x"])
    return {"codes": codes, "scale": scale}


def _bit_linear(s: Subject, d: Draft) -> Arrays:
    i, rule = d.inputs, d.parameters["scale_rule"]
    acc = s.arithmetic.accumulate(i["codes"], i["trits"])
    return {"acc": acc, "out": s.arithmetic.apply_scales(acc, i["scale"], i["weight_scale"], rule)}


def _linear(s: Subject, d: Draft) -> Arrays:
    codes, scale = s.arithmetic.quantize(d.inputs["x"])
    acc = s.arithmetic.accumulate(codes, d.inputs["trits"])
    out = s.arithmetic.apply_scales(acc, scale, d.inputs["weight_scale"], d.parameters["scale_rule"])
    return {"codes": codes, "scale": scale, "acc": acc, "out": out}


def _rms_norm(s: Subject, d: Draft) -> Arrays:
    return {"x": s.arithmetic.rms_norm(d.inputs["x"], d.inputs["gain"], d.parameters["eps"])}


def _rope(s: Subject, d: Draft) -> Arrays:
    x = d.inputs["x"]
    table = s.arithmetic.rotation_table(d.inputs["positions"], x.shape[2], d.parameters["theta"])
    return {"x": s.arithmetic.rotate(x, table)}


def _softmax(s: Subject, d: Draft) -> Arrays:
    return {"x": s.arithmetic.softmax_weights(d.inputs["q"], d.inputs["k"], start=d.parameters["start"])}


def _mix(s: Subject, d: Draft) -> Arrays:
    return {"x": s.arithmetic.mix_values(d.inputs["probs"], d.inputs["v"])}


def _ffn_activation(s: Subject, d: Draft) -> Arrays:
    return {"x": s.arithmetic.gated_activation(d.inputs["gate"], d.inputs["up"], d.parameters["activation"])}


def _add(_: Subject, d: Draft) -> Arrays:
    return {"x": d.inputs["a"] + d.inputs["b"]}


def _kv(_: Subject, d: Draft) -> Arrays:
    """Keys and values as read back after the last chunk, and the rows of bytes of schemes that have such."""
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


def _kv_load(_: Subject, d: Draft) -> Arrays:
    p = d.parameters
    scheme, shape = kv_scheme(p["scheme"], **p["options"]), Sizes(1, p["kv_heads"], p["head_dim"])
    assert isinstance(scheme, TokenScheme)
    sides: tuple[Side, Side] = ("k", "v")
    return {side: scheme.load(d.inputs[f"{side}_bytes"], shape, 0, side) for side in sides}


# ---- models, decode loops, tokenizers ----------------------------------------------------------------------------


def _operation(s: Subject, d: Draft) -> Arrays:
    return FaultyEngine(s, capacity=1).operation(d.parameters["operation"], dict(d.inputs))


def _logits(s: Subject, d: Draft) -> Arrays:
    tokens, engine = d.parameters["tokens"], FaultyEngine(s, capacity=len(d.parameters["tokens"]))
    rows, at = [], 0
    for count in d.parameters["chunks"]:
        rows.append(engine.prefill(tokens[at : at + count]))
        at += count
    return {"logits": np.concatenate(rows)}


def _asked(method: str) -> Callable[[Subject, Draft], Answer]:
    def asked(s: Subject, d: Draft) -> Answer:
        found: Any = getattr(FaultyEngine(s, capacity=1), method)(*d.parameters.values())
        if method == "stream":
            return Answer(texts=list(found))
        return Answer({"ids": np.asarray(list(found), np.int64)})

    return asked


_KINDS: dict[str, Callable[[Subject, Draft], Answer | Arrays]] = {
    "unpack": _unpack,
    "open": _open,
    "quantize": _quantize,
    "bit_linear": _bit_linear,
    "linear": _linear,
    "rms_norm": _rms_norm,
    "rope": _rope,
    "softmax": _softmax,
    "mix": _mix,
    "ffn_activation": _ffn_activation,
    "add": _add,
    "kv": _kv,
    "kv_load": _kv_load,
    "operation": _operation,
    "logits": _logits,
    **{method: _asked(method) for method in ("generate", "serve", "diffuse", "encode", "chat", "stream")},
}
