"""Engines that declare a precision and are wrong within it: no policy excuses a fault."""

import numpy as np
from base_engine import Engine, F
from registry import ENTRIES, faulty, made
from right import policies  # noqa: F401 - the engines that are made wrong here


def tiled_heads(self: Engine, n: int, head: int) -> int:
    return head % self.kv


def window_of_16(self: Engine, n: int, rows: int, columns: int) -> np.ndarray:
    seen = Engine.visible(self, n, rows, columns)
    at = (columns - rows + np.arange(rows))[:, None]
    return seen & (np.arange(columns) > at - 16)


def other_theta(self: Engine) -> np.ndarray:
    return 10_001.0 ** (-np.arange(0, self.d, 2) / self.d) * 1.01


def truncated(self: Engine, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = F(127) / np.maximum(np.abs(x).max(-1), F(1e-5))
    return np.clip(np.trunc(x * s[:, None]), -128, 127), s


def positions_from_step(self: Engine, count: int) -> np.ndarray:
    return Engine.positions(self, count) + (count == 1)


FAULTS: dict[str, tuple[str, dict[str, object]]] = {
    "TiledHeads": ("query head h reads key head h % kv_heads", {"kv_head": tiled_heads}),
    "Window16": ("attention sees 16 keys", {"visible": window_of_16}),
    "OtherTheta": ("RoPE turns by 1 % more", {"frequencies": other_theta}),
    "LateSteps": ("a step is read one position too late", {"positions": positions_from_step}),
}
RIGHT = (
    "DeclaredCacheF16", "DeclaredCacheBf16", "DeclaredCacheE4m3", "DeclaredCacheE5m2", "DeclaredCacheInt8",
    "DeclaredCacheQ80", "WeightsOnly", "RoundingBf16", "RoundingF16", "HeadQ80", "HeadQ6K", "DeclaredLogitsF16",
    "DeclaredLogitsBf16", "CacheAndLogits",
)  # fmt: skip
for _name in RIGHT:
    _base = ENTRIES[_name].engine
    for _fault, (_what, _methods) in FAULTS.items():
        if not ("positions" in _methods and _name == "WeightsOnly"):
            faulty("policy", f"declares {_base.policy}: {_what}", options=("--quick",))(
                made(f"{_name}{_fault}", _base, **_methods)
            )
    if _name != "WeightsOnly":
        faulty("policy", f"declares {_base.policy}: codes are truncated", options=("--quick",))(
            made(f"{_name}Truncated", _base, quantize=truncated)
        )
