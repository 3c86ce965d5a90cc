"""Engines that the judge must catch: with one fault of the library, or misbehaving."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.checkpoint import open_checkpoint
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Q8_K_ARITHMETIC
from tritgold_conformance.faults import fault as known
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.golden.reference_engine import ReferenceEngine

# Of the library: name -> (first divergence, its class).
FAULTS: dict[str, tuple[str, str]] = {
    "scale-divided": ("layers.0.q.out", ""),
    "silu": ("layers.0.ffn_act", ""),
    "rope-theta-1e4": ("layers.0.q_rope", ""),
    "norm-eps-1e-3": ("layers.0.attn_norm", ""),
    "hf-rows-interleaved": ("layers.0.q.acc", "channels permuted"),
    "sign-flipped": ("layers.0.q.acc", "sign flipped"),
    "scale-never-on-v": ("layers.0.v.out", "a constant ratio"),
    "scale-never-on-gate": ("layers.0.gate.out", "a constant ratio"),
    "per-tensor": ("layers.0.attn_in.codes", ""),
    "truncated": ("layers.0.attn_in.codes", "truncation"),
    "every-8th-skipped": ("layers.0.q.acc", ""),
    "offset-missing": ("layers.0.q.acc", "shifted by one constant"),
    "rope-missing": ("layers.0.q_rope", "equal at position 0"),
    "mask-missing": ("layers.0.probs", ""),
    "ffn-sub-norm-skipped": ("layers.0.ffn_sub_norm", ""),
}
# Faults that a model's own activations do not show: name -> what shows it.
UNSEEN = {
    "half-away": "layers.0.attn_in.codes [ties, zeros, tiny]",
    "no-floor": "layers.0.attn_in.codes [ties, zeros, tiny]",
    "int16-wraps": "layers.0.down.acc [extreme sums]",
}


def Faulty(model: str, fault: str = "scale-divided") -> ReferenceEngine:  # noqa: N802 - named like an engine's class
    """The golden model with one fault of the library, which the model must be able to have."""
    mutant = known(fault).apply(Mutant(open_checkpoint(Path(model))))
    assert mutant is not None
    engine = ReferenceEngine(mutant.checkpoint, arithmetic=mutant.arithmetic)
    engine.name = f"faulty: {fault}"
    return engine


class LogitsOnly:
    """An engine that gives only logits; with ``fault`` they are wrong."""

    name = "logits only"

    def __init__(self, model: str, fault: str | None = None) -> None:
        self._inner = Faulty(model, fault) if fault else ReferenceEngine(open_checkpoint(Path(model)))

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
    """Decodes every token as if it were alone at position 0."""

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
    """Never returns, and ignores interrupts that are exceptions."""

    name = "hanging"

    def prefill(self, tokens: list[int]) -> np.ndarray:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)


class HangingOperation(LogitsOnly):
    """The same in an operation, where an exception would be a failure of that operation only."""

    name = "hanging operation"

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        while True:
            time.sleep(0.01)


class HangingWriter(LogitsOnly):
    """Wrong, and generates for ever; the judge does not call ``generate``, a diagnosis does."""

    name = "hanging writer"

    def __init__(self, model: str) -> None:
        super().__init__(model, "rope-missing")

    def generate(self, prompt: list[int], max_tokens: int, options: dict[str, Any]) -> list[int]:
        while True:
            time.sleep(0.01)


class HangingAtTheStart:
    """Its construction does not end."""

    def __init__(self, model: str) -> None:
        time.sleep(1000)


class WritesOtherTokens(LogitsOnly):
    """Generates the second most likely token; its logits are right."""

    name = "writes other tokens"

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]]:
        self.reset()
        return int(np.argsort(self._inner.prefill(tokens)[-1])[-2]), {}


class NotANumber(LogitsOnly):
    """Returns NaN from every operation with float outputs, in the right shapes."""

    name = "not a number"

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = ReferenceEngine.operation(self._inner, name, inputs)
        floats = {role: array for role, array in outputs.items() if array.dtype.kind == "f"}
        return {role: np.full(array.shape, np.nan, np.float32) for role, array in floats.items()}


class ForgetfulPrefill(ReferenceEngine):
    """Right in one prefill and in steps; a prefill leaves nothing in the cache."""

    name = "forgetful prefill"

    def __init__(self, model: str) -> None:
        super().__init__(open_checkpoint(Path(model)))

    def prefill(self, tokens: list[int]) -> np.ndarray:
        length = self._cache.length
        logits = super().prefill(tokens)
        self._cache.truncate(length)
        return logits


class ReusesItsBuffers(ReferenceEngine):
    """Right, but every answer uses the same memory as the previous one."""

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
    """Shows its floats, but no codes, scales or accumulators, like the hooks of most engines."""

    name = "without codes"

    def __init__(self, model: str, quantize: Callable[..., Any] = GOLDEN_ARITHMETIC.quantize) -> None:
        super().__init__(open_checkpoint(Path(model)), arithmetic=replace(GOLDEN_ARITHMETIC, quantize=quantize))

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        arrays = super().trace(tokens).arrays
        return {n: a for n, a in arrays.items() if not n.endswith((".codes", ".scale", ".acc"))}


class Talkative(LogitsOnly):
    """Prints to stdout."""

    name = "talkative"

    def prefill(self, tokens: list[int]) -> np.ndarray:
        print("loading kernels ...")
        return super().prefill(tokens)


class Exiting(LogitsOnly):
    """Exits the process with exit code 0."""

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
    """Has every method and answers none."""

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
    """Wrong in both modes."""

    def prefill(self, tokens: list[int]) -> np.ndarray:
        return super().prefill(tokens) * np.float32(1.5)


class LastLayerOff(ReferenceEngine):
    """Gives only a trace without integers; the last down output is slightly larger, as a broken tie could make it."""

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
    """Gives only the rms of the logits, off by less than broken ties change it."""

    prefill = None  # type: ignore[assignment]
    name = "logits off"

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        logits = self._inner.trace(tokens)["logits"].astype(np.float64)
        return {"logits": {"rms": float(np.sqrt((logits**2).mean())) * 1.0001}}
