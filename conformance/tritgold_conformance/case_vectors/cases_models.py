"""Small models: each operation of a graph with its own weights (L1), and logits of prompts, pieces and steps (L4).

The folders have the form of docs/command-protocol.md: a program for that protocol can be run on them unchanged.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.golden import embedded_model
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.graph import Operation
from tritgold.ternary import InMemoryTernary, TernaryTensor
from tritgold.weights import LINEARS, LayerWeights
from tritgold_conformance.case_vectors.allowed import OfRow
from tritgold_conformance.case_vectors.draft import Draft, Group
from tritgold_conformance.comparing.compare import Exact, Tolerance
from tritgold_conformance.comparing.logits import LOGIT_NOISE
from tritgold_conformance.comparing.tolerance import tolerances
from tritgold_conformance.contract.session import Session
from tritgold_conformance.faults import witness_architectures as parts
from tritgold_conformance.faults.quick import in_memory
from tritgold_conformance.golden.run import GoldenRun, judging_tokens
from tritgold_conformance.questions.edge_inputs import ties_zeros_tiny
from tritgold_conformance.questions.request_batch import OperationInput, RequestBatch

# Sizes that do not fit any tile; two layers, so that they can be confused; query heads that share key heads.
SMALL = Shape(seed=21, hidden=24, inter=36, layers=2, heads=4, kv_heads=2, context=64)
LLAMA = Shape(seed=22, hidden=20, inter=28, layers=2, heads=2, kv_heads=1, context=64)
DEEP = Shape(seed=23, hidden=8, inter=8, layers=12, heads=2, kv_heads=1, context=32)
# Of further architectures: heads of 16, whose frequencies lie in, above and below the band that yarn and llama3 smooth.
FURTHER = Shape(seed=26, hidden=32, inter=24, layers=3, heads=2, kv_heads=1, context=64)
OPERATION_TOKENS = 5
FURTHER_TOKENS = parts.WINDOW + 3
LOGIT_TOKENS = {"small": 20, "llama": 20, "deep": 8, **dict.fromkeys(("qwen", "gemma", "granite"), FURTHER_TOKENS)}
# Seeds of inputs whose codes are all more than TIE_MARGIN from a rounding tie: float noise of an engine breaks none.
TIE_MARGIN = 5e-4
SEEDS = {"small": 25, "llama": 85, "deep": 25, "qwen": 55, "gemma": 19, "granite": 24, "seeded": 4}
LOGITS = OfRow(LOGIT_NOISE, "float32 noise of a whole pass; no code of this input lies near a rounding tie")


def groups() -> Iterator[Group]:
    """models/small, models/llama, models/deep, those of further architectures, models/seeded."""
    yield _model("small", small(), "squared ReLU, sub-norms, tied head; scales of 24 bits that multiply")
    yield _model("llama", llama(), "SiLU, no sub-norms, untied head; scales that divide")
    yield _model("deep", deep(), "twelve layers: in the order of their names 10 comes before 2", operations=False)
    yield _model("qwen", qwen(), "Qwen's parts: biases of q, k and v, yarn, a window in all layers but the first")
    yield _model("gemma", gemma(), "Gemma's parts: norms of heads and before the residuals, windows, two thetas")
    yield _model("granite", granite(), "Granite's parts: constant factors, RoPE as Llama 3 scales it")
    yield _embedded()


def small() -> Checkpoint:
    """BitNet's graph."""
    return _with_scales(_seeded(SMALL), lambda scale: scale)


def llama() -> Checkpoint:
    """The Llama family's graph."""
    made = _with_scales(_seeded(LLAMA), lambda scale: np.float32(1) / scale)
    layers = tuple(replace(layer, attn_sub_norm=None, ffn_sub_norm=None) for layer in made.weights.layers)
    config = replace(made.config, activation="silu", sub_norms=False, scale_rule="divide", tied_head=False,
                     rope_theta=1e4)  # fmt: skip
    head = _seeded(replace(LLAMA, seed=24)).weights.embedding
    return replace(made, config=config, weights=replace(made.weights, layers=layers, head=head))


def deep() -> Checkpoint:
    """More than ten layers."""
    return _with_scales(_seeded(DEEP), lambda scale: scale)


def qwen() -> Checkpoint:
    """Qwen's graph."""
    return _with_scales(parts.qwen(_seeded(FURTHER)), lambda scale: scale)


def gemma() -> Checkpoint:
    """Gemma's graph."""
    return _with_scales(parts.gemma(_seeded(replace(FURTHER, seed=27))), lambda scale: scale)


def granite() -> Checkpoint:
    """Granite's graph."""
    return _with_scales(parts.granite(_seeded(replace(FURTHER, seed=28))), lambda scale: scale)


def wide() -> Checkpoint:
    """Rows of 256, which some faults need; it has no cases."""
    return _seeded(Shape(seed=25, hidden=256, inter=256, layers=1, heads=4, kv_heads=2, context=8))


def _seeded(shape: Shape) -> Checkpoint:
    with tempfile.TemporaryDirectory(prefix="tritgold-") as folder:
        write_seeded_model(Path(folder), shape)
        return in_memory(open_checkpoint(folder))


def _with_scales(made: Checkpoint, change: Callable[[np.ndarray], np.ndarray]) -> Checkpoint:
    """The model with changed weight scales of 24 bits, which differ by a factor near 1: in bf16 two might be equal."""

    def changed(index: int, layer: LayerWeights) -> LayerWeights:
        scaled: dict[str, Any] = {}
        for at, name in enumerate(LINEARS):
            t = layer.linear(name).ternary()
            factor = np.float32(1 + (2 * (7 * index + at) + 1) / 4801)
            scaled[name] = InMemoryTernary(TernaryTensor(t.trits, np.asarray(change(t.scale) * factor, np.float32)))
        return replace(layer, **scaled)

    layers = tuple(changed(index, layer) for index, layer in enumerate(made.weights.layers))
    return replace(made, weights=replace(made.weights, layers=layers))


def logit_tokens(name: str, checkpoint: Checkpoint, seed: int | None = None) -> list[int]:
    """The input tokens for a model's logits."""
    return judging_tokens(LOGIT_TOKENS[name], checkpoint.config.vocab, SEEDS[name] if seed is None else seed)


def _model(name: str, checkpoint: Checkpoint, about: str, operations: bool = True) -> Group:
    config, tokens = checkpoint.config, logit_tokens(name, checkpoint)
    drafts, asked = [], []
    if operations:
        golden = GoldenRun.of(checkpoint, judging_tokens(OPERATION_TOKENS, config.vocab, 7))
        for number, (operation, inputs) in enumerate(_inputs(golden)):
            allowed = tolerances(operation, inputs, config, checkpoint.weights)
            drafts.append(_operation(operation, inputs, number, allowed))
            asked.append(OperationInput(operation, inputs))
    count = len(tokens)
    chunks = {"prefill": [count], "pieces": [4, 3, *[1] * (count - 7)], "steps": [1] * count}
    sessions = [Session(label, tokens, lengths) for label, lengths in chunks.items()]
    drafts += [_logits(session) for session in sessions]
    requests = RequestBatch(asked, [], sessions)
    return Group(f"models/{name}", "logits", f"A model of noise: {about}.", drafts, checkpoint, requests)


def _embedded() -> Group:
    """Logits of the seeded golden model, at positions 0, 1 and the last. Its tensors would double the folder's size."""
    with embedded_model("seeded") as path:
        checkpoint = in_memory(open_checkpoint(path))
    tokens = judging_tokens(3, checkpoint.config.vocab, SEEDS["seeded"])
    model = {"model_hash": checkpoint.model_hash(), "written_by": "python -m tritgold.golden FOLDER seeded"}
    drafts = [
        replace(draft, parameters={**draft.parameters, **model})
        for draft in map(_logits, (Session("prefill", tokens, [3]), Session("steps", tokens, [1, 1, 1])))
    ]
    about = "The seeded golden model, 4 layers of 256: not in this folder, a command writes it."
    return Group("models/seeded", "logits", about, drafts, checkpoint, carried=False)


def _inputs(golden: GoldenRun) -> Iterator[tuple[Operation, dict[str, np.ndarray]]]:
    """Golden inputs; quantisers get exact ties and zeros, and norms get a tiny token, which shows their eps."""
    for operation, inputs in golden.operations():
        if operation.kind == "quantize":
            yield operation, {"x": ties_zeros_tiny(inputs["x"].shape[1])}
        elif operation.kind == "rms_norm":
            x = inputs["x"].copy()
            x[1] *= np.float32(2**-10)
            yield operation, {"x": x}
        else:
            yield operation, inputs


def _operation(
    operation: Operation, inputs: dict[str, np.ndarray], number: int, allowed: dict[str, Tolerance]
) -> Draft:
    if operation.kind == "quantize":
        allowed = {**allowed, "codes": Exact("x * s is exact here: half to even, floor of 1e-5")}
    optional = ("acc",) if operation.kind == "bit_linear" else ()
    return Draft(operation.name, "operation", f"this {operation.kind} alone, with the model's own weights",
                 {"operation": operation.name}, inputs, None, allowed, optional,
                 array_prefix=f"operation/{number}")  # fmt: skip


def _logits(session: Session) -> Draft:
    parameters = {"tokens": session.tokens, "chunks": session.chunks}
    why = {"prefill": "one prefill", "pieces": "a prompt in two pieces, then steps", "steps": "token by token"}
    return Draft(f"logits-{session.id}", "logits", f"{why[session.id]}: the same logits at each position", parameters,
                 {}, None, {"logits": LOGITS}, array_prefix=f"logits/{session.id}")  # fmt: skip
