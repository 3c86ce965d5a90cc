"""Inputs that show faults: models of several families and sizes, and bytes of the packed formats.

Small models are written from a seed each time they are asked for: noise, yet with scales, gains and sizes that hide
nothing. Equal scales would hide swapped ones, sizes that are whole blocks a dropped tail, ten layers a lexical order.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.counter_random import random_bits
from tritgold.golden import trained_model
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.ternary import TernaryTensor
from tritgold.weights import LINEARS
from tritgold_conformance.faults.packing import FORMATS
from tritgold_conformance.faults.quick import Rows, in_memory, with_linears
from tritgold_conformance.faults.witness_architectures import gemma, granite, qwen


def _seeded(shape: Shape) -> Callable[[], Checkpoint]:
    def opened() -> Checkpoint:
        with tempfile.TemporaryDirectory(prefix="tritgold-") as folder:
            write_seeded_model(Path(folder), shape)
            return in_memory(open_checkpoint(folder))

    return opened


def _llama() -> Checkpoint:
    """SiLU, no sub-norms, scales that divide."""
    made = _seeded(Shape(seed=5, hidden=128, inter=192, layers=2, heads=4, kv_heads=2, context=64))()

    def inverted(_: str, t: TernaryTensor) -> TernaryTensor:
        return TernaryTensor(t.trits, np.asarray(np.float32(1) / t.scale))

    layers = tuple(with_linears(x, inverted, attn_sub_norm=None, ffn_sub_norm=None) for x in made.weights.layers)
    config = replace(made.config, activation="silu", sub_norms=False, scale_rule="divide")
    return replace(made, config=config, weights=replace(made.weights, layers=layers))


def _float_scales() -> Checkpoint:
    """Scales with 24 significant bits, as an I2_S file may have them."""
    made = _seeded(Shape(seed=6, hidden=128, inter=128, layers=2, heads=2, kv_heads=1, context=64))()

    def longer(name: str, t: TernaryTensor) -> TernaryTensor:
        return TernaryTensor(t.trits, np.asarray(t.scale * np.float32(1 + (2 * LINEARS.index(name) + 1) / 4801)))

    layers = tuple(with_linears(x, longer) for x in made.weights.layers)
    return replace(made, weights=replace(made.weights, layers=layers))


def _untied() -> Checkpoint:
    """A head of its own; four query heads a key head, three layers."""
    made = _seeded(Shape(seed=9, hidden=160, inter=224, layers=3, heads=8, kv_heads=2, context=64))()
    w = made.weights
    head = np.roll(w.embedding.rows(slice(None)), 7, axis=0)[:, ::-1] * np.float32(1.25)
    return replace(
        made, config=replace(made.config, tied_head=False), weights=replace(w, head=Rows(np.ascontiguousarray(head)))
    )


def _diffusing() -> Checkpoint:
    """A mask, blocks of 8, and an end of sequence that comes."""
    made = _seeded(Shape(seed=8, hidden=64, inter=96, layers=2, heads=2, kv_heads=1, context=128))()
    return replace(made, config=replace(made.config, mask=258, block=8))


def _with_parts(of: Callable[[Checkpoint], Checkpoint], seed: int, hidden: int = 64) -> Callable[[], Checkpoint]:
    """hidden: the square root of 80, Gemma's factor of the embedding, is not a bfloat16 number; that of 64 is."""
    return lambda: of(_seeded(Shape(seed=seed, hidden=hidden, inter=96, layers=3, heads=4, kv_heads=2, context=64))())


MODELS: dict[str, Callable[[], Checkpoint]] = {
    "kjv-ar": lambda: open_checkpoint(trained_model("kjv-ar")),
    "kjv-dlm": lambda: open_checkpoint(trained_model("kjv-dlm")),
    "seeded": _seeded(Shape(seed=7, hidden=128, inter=256, layers=2, heads=4, kv_heads=2, context=64)),
    "odd": _seeded(Shape(seed=3, hidden=120, inter=204, layers=2, heads=6, kv_heads=3, context=64)),
    "deep": _seeded(Shape(seed=4, hidden=32, inter=32, layers=12, heads=2, kv_heads=1, context=64)),
    "diffusing": _diffusing,
    "llama": _llama,
    "untied": _untied,
    "float-scales": _float_scales,
    "qwen": _with_parts(qwen, 10),
    "gemma": _with_parts(gemma, 11, hidden=80),
    "granite": _with_parts(granite, 12),
}


@dataclass(frozen=True)
class FileCase:
    """Packed bytes and what they are. why: what the case is there for."""

    format: str
    data: bytes
    shape: tuple[int, int]
    why: str


def _trits(seed: int, shape: tuple[int, int]) -> np.ndarray:
    bits = random_bits(seed, np.arange(1, shape[0] * shape[1] + 1, dtype=np.uint64))
    return ((bits >> np.uint64(40)) % np.uint64(3)).astype(np.int8).reshape(shape) - np.int8(1)


def _dirty() -> bytes:
    """An I2_S block of zeros in which weight 5 has code 3."""
    data = bytearray(FORMATS["i2_s"].pack(np.zeros((1, 128), np.int8), 0.37))
    data[5] |= 0b11 << 6
    return bytes(data)


def _blocks() -> bytes:
    """Two TQ2_0 blocks with scales of their own."""
    return FORMATS["tq2_0"].pack(_trits(9, (1, 512)), np.array([[0.37, 2.6]], np.float32))


@lru_cache(maxsize=1)
def file_cases() -> tuple[FileCase, ...]:
    """Every format with random trits and a scale that is not 1; then what trits alone do not show."""
    shape = (128, 512)
    cases = [
        FileCase(name, layout.pack(_trits(n, shape), 0.37), shape, "random trits")
        for n, (name, layout) in enumerate(FORMATS.items())
    ]
    return (
        *cases,
        FileCase("i2_s", _dirty(), (1, 128), "code 3, which must be refused"),
        FileCase("tq2_0", _blocks(), (1, 512), "blocks with scales of their own"),
    )
