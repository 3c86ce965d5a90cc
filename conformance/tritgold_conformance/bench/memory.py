"""Disk and memory that a benchmark needs, checked before anything is allocated."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from tritgold.config import ModelConfig
from tritgold.errors import EngineError, OutputError
from tritgold.machine import available_memory
from tritgold.weights import LINEARS

SPARE = 256 << 20  # bytes left to other programs


def ternary_weights(config: ModelConfig) -> int:
    """Number of ternary weights of a model; each is one multiply-accumulate per token."""
    sizes = [config.linear_shape(name) for name in LINEARS]
    return config.layers * sum(out * in_ for out, in_ in sizes)


def head_weights(config: ModelConfig) -> int:
    """Number of weights of the head."""
    return config.vocab * config.hidden


def kv_values(config: ModelConfig) -> int:
    """Number of values that one position adds to the KV cache."""
    return 2 * config.layers * config.kv_width


def engine_bytes(config: ModelConfig, positions: int, matrices: int = 1) -> int:
    """Most memory that the engines reference and xla need: packed weights, and float32 for everything else.

    matrices: copies of embedding and head, float32; an engine that keeps bfloat16 needs half.
    """
    floats = head_weights(config) * matrices * (1 if config.tied_head else 2)
    unpacked = max(out * in_ for out, in_ in (config.linear_shape(name) for name in LINEARS))
    return ternary_weights(config) // 4 + 4 * (floats + kv_values(config) * positions + unpacked) + (400 << 20)


def peer_bytes(name: str, config: ModelConfig, positions: int, file_size: int) -> int:
    """Memory of another engine: llama.cpp and its forks map the file; transformers makes bfloat16 of every weight."""
    if name != "transformers":
        return file_size + 2 * kv_values(config) * positions + (300 << 20)
    floats = head_weights(config) * (1 if config.tied_head else 2)
    # While loading, the packed weights and one matrix in float32 are in memory beside the finished weights.
    return int(2.3 * (ternary_weights(config) + floats)) + (700 << 20)


def require_memory(need: dict[str, int], hint: str = "--layers cuts the model, or name another --shape") -> None:
    """Raise EngineError ``memory`` if the parts, bytes by name, need more together than the machine has free."""
    free = available_memory()
    wanted = sum(need.values()) + SPARE
    if free is not None and wanted > free:
        parts = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in need.items())
        raise EngineError(
            "does not fit into memory",
            kind="memory",
            thing=f"benchmark ({parts} GB)",
            got=f"{free / 1e9:.1f} GB free",
            expected=f"{wanted / 1e9:.1f} GB",
            hint=hint,
        )


def require_disk(folder: Path, size: int) -> None:
    """Raise OutputError ``disk-full`` if the folder's disk has no room for ``size`` bytes. The folder must exist."""
    free = shutil.disk_usage(folder).free
    if size + SPARE > free:
        raise OutputError(
            "no room for the synthetic model",
            kind="disk-full",
            file=folder,
            got=f"{free / 1e9:.1f} GB free",
            expected=f"{(size + SPARE) / 1e9:.1f} GB",
            hint="set XDG_CACHE_HOME to another disk, or cut the model with --layers",
        )


def peak_memory(process: int | str = "self") -> int | None:
    """Largest resident size of a process so far, bytes (VmHWM): mapped pages of files included."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


def forget_peak() -> None:
    """Begin ``peak_memory`` again from what is resident now, where the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def cores() -> list[int]:
    """Numbers of the processors that this process may use; empty if the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
