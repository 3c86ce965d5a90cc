"""Engines with one deliberate fault each, made from the golden model: what the judge must catch.

A fault is either another configuration, other weights, or one replaced operation; there is no copy of the model.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Q8_K_ARITHMETIC, Arithmetic
from tritgold.layers.rotary import rotation_table
from tritgold.ternary import InMemoryTernary, TernaryTensor
from tritgold.weights import LINEARS, ModelWeights
from tritgold_conformance.golden.reference_engine import ReferenceEngine

Change = Callable[[Checkpoint], Checkpoint]


def changed_linears(checkpoint: Checkpoint, change: Callable[[str, TernaryTensor], TernaryTensor]) -> ModelWeights:
    """The weights with every linear passed through ``change(name, tensor)``."""
    layers = tuple(
        replace(layer, **{n: InMemoryTernary(change(n, layer.linear(n).ternary())) for n in LINEARS})
        for layer in checkpoint.weights.layers
    )
    return replace(checkpoint.weights, layers=layers)


def config_with(**fields: Any) -> Callable[[Checkpoint], Checkpoint]:
    return lambda checkpoint: replace(checkpoint, config=replace(checkpoint.config, **fields))


def linears_with(change: Callable[[str, TernaryTensor], TernaryTensor]) -> Callable[[Checkpoint], Checkpoint]:
    return lambda checkpoint: replace(checkpoint, weights=changed_linears(checkpoint, change))


def interleaved(_: str, t: TernaryTensor) -> TernaryTensor:
    """HF rows read as i::4: true row (s % 4) * (out / 4) + s // 4 at place s."""
    s = np.arange(t.shape[0])
    return TernaryTensor(t.trits[(s % 4) * (t.shape[0] // 4) + s // 4], t.scale)


def without_scale(name: str) -> Callable[[str, TernaryTensor], TernaryTensor]:
    return lambda n, t: TernaryTensor(t.trits, np.asarray(1, np.float32)) if n == name else t


def per_tensor(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = np.float32(127) / max(np.abs(x).max(), np.float32(1e-5))
    return np.rint(x * scale).astype(np.int8), np.full(len(x), scale, np.float32)


def truncating(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = np.float32(127) / np.maximum(np.abs(x).max(axis=1), np.float32(1e-5))
    return np.trunc(x * scale[:, None]).astype(np.int8), scale


def half_away(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = np.float32(127) / np.maximum(np.abs(x).max(axis=1), np.float32(1e-5))
    scaled = x * scale[:, None]
    return (np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))).astype(np.int8), scale


def no_floor(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    absmax = np.abs(x).max(axis=1)
    scale = np.where(absmax > 0, np.float32(127) / np.maximum(absmax, np.float32(1e-30)), np.float32(1))
    return np.rint(x * scale[:, None]).astype(np.int8), scale.astype(np.float32)


def int16_sums(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    return (codes.astype(np.int32) @ trits.astype(np.int32).T).astype(np.int16).astype(np.int32)


def every_eighth_skipped(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    kept = np.arange(codes.shape[1]) % 8 != 7
    return codes[:, kept].astype(np.int32) @ trits[:, kept].astype(np.int32).T


def no_offset_correction(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    return codes.astype(np.int32) @ (trits.astype(np.int32) + 1).T


def no_rotation(positions: np.ndarray, head_dim: int, theta: float) -> Any:
    return rotation_table(positions * 0, head_dim, theta)


def unmasked(q: np.ndarray, k: np.ndarray, start: int) -> np.ndarray:
    group = q.shape[1] // k.shape[1]
    scores = np.einsum("thd,shd->hts", q, np.repeat(k, group, axis=1)).astype(np.float64) / np.sqrt(q.shape[2])
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return (weights / weights.sum(axis=2, keepdims=True)).astype(np.float32)


def no_sub_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    """Skips the norms of width inter: the sub-norm before down, in the seeded model."""
    mean_square = (x.astype(np.float64) ** 2).mean(axis=1, keepdims=True)
    return x if len(gain) == 768 else (x / np.sqrt(mean_square + eps) * gain).astype(np.float32)


# name -> (checkpoint change, replaced operation, first divergence, class of it)
FAULTS: dict[str, tuple[Change | None, dict[str, Callable[..., Any]], str, str]] = {
    "scale divided": (config_with(scale_rule="divide"), {}, "layers.0.q.out", ""),
    "silu for relu2": (config_with(activation="silu"), {}, "layers.0.ffn_act", ""),
    "theta 1e4": (config_with(rope_theta=1e4), {}, "layers.0.q_rope", ""),
    "eps 1e-3": (config_with(norm_eps=1e-3), {}, "layers.0.attn_norm", ""),
    "rows interleaved": (linears_with(interleaved), {}, "layers.0.q.acc", "channels permuted"),
    "signs flipped": (
        linears_with(lambda _, t: TernaryTensor(-t.trits, t.scale)),
        {},
        "layers.0.q.acc",
        "sign flipped",
    ),
    "v without scale": (linears_with(without_scale("v")), {}, "layers.0.v.out", "a constant ratio"),
    "gate without scale": (linears_with(without_scale("gate")), {}, "layers.0.gate.out", "a constant ratio"),
    "per tensor": (None, {"quantize": per_tensor}, "layers.0.attn_in.codes", ""),
    "truncating": (None, {"quantize": truncating}, "layers.0.attn_in.codes", "truncation"),
    "every eighth skipped": (None, {"accumulate": every_eighth_skipped}, "layers.0.q.acc", ""),
    "no offset correction": (None, {"accumulate": no_offset_correction}, "layers.0.q.acc", "shifted by one constant"),
    "no rope": (None, {"rotation_table": no_rotation}, "layers.0.q_rope", "equal at position 0"),
    "no mask": (None, {"softmax_weights": unmasked}, "layers.0.probs", ""),
    "sub-norm dropped": (None, {"rms_norm": no_sub_norm}, "layers.0.ffn_sub_norm", ""),
}


def faulty(model: str, fault: str) -> ReferenceEngine:
    """The golden model with one fault of the table."""
    change, replaced, *_ = FAULTS[fault]
    checkpoint = open_checkpoint(Path(model))
    arithmetic: Arithmetic = replace(GOLDEN_ARITHMETIC, **replaced)
    engine = ReferenceEngine(change(checkpoint) if change else checkpoint, arithmetic=arithmetic)
    engine.name = f"faulty: {fault}"
    return engine


# Faults that a model's own activations do not show: name -> (replaced operation, what shows it).
UNSEEN: dict[str, tuple[dict[str, Callable[..., Any]], str]] = {
    "half away": ({"quantize": half_away}, "layers.0.attn_in.codes [ties, zeros, tiny]"),
    "no floor": ({"quantize": no_floor}, "layers.0.attn_in.codes [ties, zeros, tiny]"),
    "int16 sums": ({"accumulate": int16_sums}, "layers.0.down.acc [extreme sums]"),
}


def Faulty(model: str, fault: str = "scale divided") -> ReferenceEngine:  # noqa: N802 - named as an engine's class
    return faulty(model, fault)


class LogitsOnly:
    """An engine that gives logits and nothing else; ``fault`` may spoil them."""

    name = "logits only"

    def __init__(self, model: str, fault: str | None = None) -> None:
        self._inner = faulty(model, fault) if fault else ReferenceEngine(open_checkpoint(Path(model)))

    def reset(self) -> None:
        self._inner.reset()

    def prefill(self, tokens: list[int]) -> np.ndarray:
        return self._inner.prefill(tokens)


class WrongStatistics(LogitsOnly):
    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        return {"logits": {"rms": 1.0}}


class InBlocks(LogitsOnly):
    """Right, in llama.cpp's arithmetic and not in the golden one."""

    name, mode = "in blocks", "llama-cpp-q8_k"

    def __init__(self, model: str) -> None:
        self._inner = ReferenceEngine(open_checkpoint(Path(model)), arithmetic=Q8_K_ARITHMETIC)


class FrozenRope(LogitsOnly):
    """Decodes every token as if it stood at position 0 and alone."""

    name = "frozen rope"

    def step(self, token: int) -> np.ndarray:
        self._inner.reset()
        return self._inner.step(token)


class Silent(LogitsOnly):
    """Offers every method and gives nothing."""

    name = "silent"

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> None:
        return None

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        return {}


class Crashing(LogitsOnly):
    """Raises in the middle of the work."""

    name = "crashing"

    def prefill(self, tokens: list[int]) -> np.ndarray:
        raise RuntimeError("kernel panic")


class Hanging(LogitsOnly):
    """Never comes back, whatever it is interrupted by."""

    name = "hanging"

    def prefill(self, tokens: list[int]) -> np.ndarray:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)


class HangingOperation(LogitsOnly):
    """The same in an operation, where any exception of its own would be a failure of that operation alone."""

    name = "hanging operation"

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        while True:
            time.sleep(0.01)


class HangingWriter(LogitsOnly):
    """Wrong, and generates for ever: what the judge does not ask, and a diagnosis does."""

    name = "hanging writer"

    def __init__(self, model: str) -> None:
        super().__init__(model, "no rope")

    def generate(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> list[int]:
        while True:
            time.sleep(0.01)


class HangingAtTheStart:
    """Is never made."""

    def __init__(self, model: str) -> None:
        time.sleep(1000)


class WritesOtherTokens(LogitsOnly):
    """Writes the second likeliest token; its logits are right."""

    name = "writes other tokens"

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]]:
        self.reset()
        return int(np.argsort(self._inner.prefill(tokens)[-1])[-2]), {}


class NotANumber(LogitsOnly):
    """Returns NaN from every operation that has floats, of the right shapes."""

    name = "not a number"

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = ReferenceEngine.operation(self._inner, name, inputs)
        floats = {role: array for role, array in outputs.items() if array.dtype.kind == "f"}
        return {role: np.full(array.shape, np.nan, np.float32) for role, array in floats.items()}


class ForgetfulPrefill(ReferenceEngine):
    """Right in one prefill and in steps; a prefill leaves nothing behind it."""

    name = "forgetful prefill"

    def __init__(self, model: str) -> None:
        super().__init__(open_checkpoint(Path(model)))

    def prefill(self, tokens: list[int]) -> np.ndarray:
        length = self._cache.length
        logits = super().prefill(tokens)
        self._cache.truncate(length)
        return logits


class ReusesItsBuffers(ReferenceEngine):
    """Right, but every answer lies in the same memory as the one before."""

    name = "reuses its buffers"

    def __init__(self, model: str) -> None:
        super().__init__(open_checkpoint(Path(model)))
        self._rows = np.zeros((512, self._config.vocab), np.float32)

    def prefill(self, tokens: list[int]) -> np.ndarray:
        logits = super().prefill(tokens)
        self._rows[: len(logits)] = logits
        return self._rows[: len(logits)]

    def step(self, token: int) -> np.ndarray:
        return self.prefill([token])[0]


class WithoutCodes(ReferenceEngine):
    """Shows its floats and neither codes, scales nor accumulators, as most engines' hooks do."""

    name = "without codes"

    def __init__(self, model: str, quantize: Callable[..., Any] = GOLDEN_ARITHMETIC.quantize) -> None:
        super().__init__(open_checkpoint(Path(model)), arithmetic=replace(GOLDEN_ARITHMETIC, quantize=quantize))

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        arrays = super().trace(tokens).arrays
        return {n: a for n, a in arrays.items() if not n.endswith((".codes", ".scale", ".acc"))}


class Talkative(LogitsOnly):
    """Prints where it should not."""

    name = "talkative"

    def prefill(self, tokens: list[int]) -> np.ndarray:
        print("loading kernels ...")
        return super().prefill(tokens)


class Exiting(LogitsOnly):
    """Leaves the process with a code of success."""

    name = "exiting"

    def prefill(self, tokens: list[int]) -> np.ndarray:
        raise SystemExit(0)


class OperationsOnly:
    """A library of kernels: no model, no logits."""

    name = "operations only"

    def __init__(self, model: str) -> None:
        self._inner = ReferenceEngine(open_checkpoint(Path(model)))

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        if name == "layers.1.probs":
            raise KeyError("no such kernel")
        if name == "layers.2.probs":
            return None
        return self._inner.operation(name, inputs)


class Nothing:
    """Has every method and knows nothing."""

    name = "nothing"

    def __init__(self, model: str = "") -> None: ...

    def reset(self) -> None: ...

    def prefill(self, tokens: list[int]) -> None:
        raise NotImplementedError

    def step(self, token: int) -> None: ...

    def trace(self, tokens: list[int]) -> None: ...

    def versions(self) -> None: ...

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> None:
        raise NotImplementedError


class Spoilt(InBlocks):
    """Another mode than the golden one, and not that either."""

    def prefill(self, tokens: list[int]) -> np.ndarray:
        return super().prefill(tokens) * np.float32(1.5)


class LastLayerOff(ReferenceEngine):
    """A trace without integers and nothing else; the last down is a little more, as a broken tie could make it."""

    name = "last layer off"
    operation = prefill = step = None  # type: ignore[assignment]

    def __init__(self, model: str) -> None:
        checkpoint = open_checkpoint(Path(model))
        last = f"layers.{checkpoint.config.layers - 1}.down.out"

        def more(name: str, value: np.ndarray, _: object) -> np.ndarray:
            return value * np.float32(1.002) if name == last else value

        super().__init__(checkpoint, arithmetic=replace(GOLDEN_ARITHMETIC, alter=more))

    def trace(self, tokens: list[int]) -> Any:
        arrays = super().trace(tokens).arrays
        return {n: a for n, a in arrays.items() if not n.endswith((".codes", ".scale", ".acc"))}


class LogitsOff(LogitsOnly):
    """The size of the logits alone, off by less than broken ties make it."""

    prefill = None  # type: ignore[assignment]
    name = "logits off"

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        logits = self._inner.trace(tokens)["logits"].astype(np.float64)
        return {"logits": {"rms": float(np.sqrt((logits**2).mean())) * 1.0001}}
