"""The names of traced arrays and their parts, with llama.cpp's and transformers' names, for dumps of other engines.

llama.cpp: the names in its graph callback (``cb_eval``), followed by ``-<layer>``; as in src/llama-graph.cpp
and src/models/bitnet.cpp of 2026. Q8_K codes of the ternary types are not visible there, so the integer tier has
no counterpart. transformers: the module whose forward hook gives the value, and whether it is its input or output.
"""

import re
from dataclasses import dataclass

import numpy as np

from tritgold.errors import TraceError

_NAME = re.compile(r"(?:layers\.(0|[1-9][0-9]{0,8})\.)?(.+?)(?:\.(codes|scale|acc|out))?(?: \[(.*)\])?", re.DOTALL)


@dataclass(frozen=True)
class TraceName:
    """The parts of a traced array's name: ``layers.<layer>.<what>.<role>``.

    layer: None outside the layers. role: only if an operation writes several arrays. label: the edge input that the
    array was computed from, in brackets after the name.
    """

    layer: int | None
    what: str
    role: str = ""
    label: str = ""

    @classmethod
    def of(cls, text: str) -> "TraceName":
        """Parse any text; its parts give the same text again. A text that is not a trace name becomes ``what``.

        >>> TraceName.of("layers.3.q.out")
        TraceName(layer=3, what='q', role='out', label='')
        >>> TraceName.of("layers.0.probs [scores of 200]").label
        'scores of 200'
        """
        found = _NAME.fullmatch(text)
        layer, what, role, label = found.groups("") if found else ("", text, "", "")
        return cls(int(layer) if layer else None, what, role, label)

    @property
    def inner(self) -> str:
        """The name within its layer, without a label: ``q.out``."""
        return f"{self.what}.{self.role}" if self.role else self.what

    @property
    def in_every_layer(self) -> str:
        """The name without its layer, which a report uses for the same output of all layers.

        >>> TraceName.of("layers.0.probs [scores of 200]").in_every_layer
        'probs [scores of 200]'
        """
        return self.inner + (f" [{self.label}]" if self.label else "")

    def sibling(self, inner: str) -> str:
        """The name of another array of the same layer.

        >>> TraceName.of("layers.3.o.out").sibling("attn_mix")
        'layers.3.attn_mix'
        """
        return inner if self.layer is None else f"layers.{self.layer}.{inner}"

    def __str__(self) -> str:
        """The text from which it was parsed."""
        return self.sibling(self.in_every_layer)


def token_axis(name: str) -> int:
    """The axis of a traced array that grows with the tokens: 1 for softmax weights, 0 for all other names."""
    taken = TraceName.of(name)
    return 1 if taken.layer is not None and taken.what == "probs" else 0


def by_token(name: str, array: np.ndarray) -> np.ndarray:
    """A traced array as [tokens, everything else]."""
    tokens_first = np.moveaxis(array, token_axis(name), 0)
    return tokens_first.reshape(len(tokens_first), -1)


@dataclass(frozen=True)
class Counterpart:
    """The names of one of our trace points in other engines; empty if the engine does not show the value.

    ``{n}`` is the layer number. hf: ``<module> output`` or ``<module> input``.
    """

    llama_cpp: str
    hf: str
    note: str = ""


_LAYER = "model.layers.{n}"
TRACE_NAMES: dict[str, Counterpart] = {
    "embedding": Counterpart("inp_embd", "model.embed_tokens output"),
    "layers.{n}.attn_norm": Counterpart("attn_norm-{n}", f"{_LAYER}.input_layernorm output"),
    "layers.{n}.attn_in.codes": Counterpart("", f"{_LAYER}.self_attn.q_proj input", "after its activation quantiser"),
    "layers.{n}.attn_in.scale": Counterpart("", f"{_LAYER}.self_attn.q_proj input", "127 / max(absmax, 1e-5)"),
    "layers.{n}.q.acc": Counterpart("", ""),
    "layers.{n}.q.out": Counterpart("Qcur-{n}", f"{_LAYER}.self_attn.q_proj output", "the first Qcur, before RoPE"),
    "layers.{n}.k.acc": Counterpart("", ""),
    "layers.{n}.k.out": Counterpart("Kcur-{n}", f"{_LAYER}.self_attn.k_proj output", "the first Kcur, before RoPE"),
    "layers.{n}.v.acc": Counterpart("", ""),
    "layers.{n}.v.out": Counterpart("Vcur-{n}", f"{_LAYER}.self_attn.v_proj output"),
    "layers.{n}.q_norm": Counterpart("Qcur_normed-{n}", f"{_LAYER}.self_attn.q_norm output", "Qwen3, Gemma 3"),
    "layers.{n}.k_norm": Counterpart("Kcur_normed-{n}", f"{_LAYER}.self_attn.k_norm output", "Qwen3, Gemma 3"),
    "layers.{n}.q_rope": Counterpart("Qcur-{n}", "", "the last Qcur; arch llama: pairs interleaved"),
    "layers.{n}.k_rope": Counterpart("Kcur-{n}", "", "the last Kcur; arch llama: pairs interleaved"),
    "layers.{n}.probs": Counterpart("kq_soft_max-{n}", f"{_LAYER}.self_attn output", "output 1, eager attention"),
    "layers.{n}.attn_mix": Counterpart("kqv_out-{n}", f"{_LAYER}.self_attn.attn_sub_norm input"),
    "layers.{n}.attn_sub_norm": Counterpart("attn_sub_norm-{n}", f"{_LAYER}.self_attn.attn_sub_norm output"),
    "layers.{n}.o_in.codes": Counterpart("", f"{_LAYER}.self_attn.o_proj input", "after its activation quantiser"),
    "layers.{n}.o_in.scale": Counterpart("", f"{_LAYER}.self_attn.o_proj input", "127 / max(absmax, 1e-5)"),
    "layers.{n}.o.acc": Counterpart("", ""),
    "layers.{n}.o.out": Counterpart("attn_out-{n}", f"{_LAYER}.self_attn.o_proj output"),
    "layers.{n}.attn_post_norm": Counterpart(
        "attn_post_norm-{n}", "", "Gemma 3: post_attention_layernorm output; its ffn_norm is pre_feedforward_layernorm"
    ),
    "layers.{n}.attn_residual": Counterpart("ffn_inp-{n}", f"{_LAYER}.post_attention_layernorm input"),
    "layers.{n}.ffn_norm": Counterpart("ffn_norm-{n}", f"{_LAYER}.post_attention_layernorm output"),
    "layers.{n}.ffn_in.codes": Counterpart("", f"{_LAYER}.mlp.gate_proj input", "after its activation quantiser"),
    "layers.{n}.ffn_in.scale": Counterpart("", f"{_LAYER}.mlp.gate_proj input", "127 / max(absmax, 1e-5)"),
    "layers.{n}.gate.acc": Counterpart("", ""),
    "layers.{n}.gate.out": Counterpart("ffn_gate-{n}", f"{_LAYER}.mlp.gate_proj output"),
    "layers.{n}.up.acc": Counterpart("", ""),
    "layers.{n}.up.out": Counterpart("ffn_up-{n}", f"{_LAYER}.mlp.up_proj output"),
    "layers.{n}.ffn_act": Counterpart("ffn_sub_out-{n}", f"{_LAYER}.mlp.ffn_sub_norm input", "Llama: down_proj input"),
    "layers.{n}.ffn_sub_norm": Counterpart("ffn_sub_norm-{n}", f"{_LAYER}.mlp.ffn_sub_norm output"),
    "layers.{n}.down_in.codes": Counterpart("", f"{_LAYER}.mlp.down_proj input", "after its activation quantiser"),
    "layers.{n}.down_in.scale": Counterpart("", f"{_LAYER}.mlp.down_proj input", "127 / max(absmax, 1e-5)"),
    "layers.{n}.down.acc": Counterpart("", ""),
    "layers.{n}.down.out": Counterpart("ffn_down-{n}", f"{_LAYER}.mlp.down_proj output"),
    "layers.{n}.ffn_post_norm": Counterpart(
        "ffn_post_norm-{n}", f"{_LAYER}.post_feedforward_layernorm output", "Gemma 3"
    ),
    "layers.{n}.ffn_residual": Counterpart("l_out-{n}", f"{_LAYER} output"),
    "final_norm": Counterpart("result_norm", "model.norm output"),
    "logits": Counterpart("result_output", "lm_head output"),
}


def counterpart(name: str) -> Counterpart:
    """The counterpart of a trace name, with its layer number. Raises TraceError for an unknown name.

    >>> counterpart("layers.3.ffn_residual").llama_cpp
    'l_out-3'
    """
    taken = TraceName.of(name)
    pattern = name if taken.layer is None else f"layers.{{n}}.{taken.inner}"
    if pattern not in TRACE_NAMES or taken.label:
        raise TraceError("is not a trace point", kind="trace-name-missing", thing=name)
    found, layer = TRACE_NAMES[pattern], str(taken.layer)
    return Counterpart(found.llama_cpp.replace("{n}", layer), found.hf.replace("{n}", layer), found.note)
