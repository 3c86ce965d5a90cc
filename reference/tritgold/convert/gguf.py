"""Convert a checkpoint to GGUF: names, order of q and k rows, the place of the scale, and the metadata."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.architectures import GGUF_ARCHITECTURES
from tritgold.checkpoint import Checkpoint
from tritgold.convert.floats import matrix_dtype, planned, planned_matrix
from tritgold.convert.plan import Plan
from tritgold.convert.targets import Target
from tritgold.convert.wanted import Wanted
from tritgold.errors import ConversionError, PackingError, TritgoldWarning
from tritgold.formats.container import FLOAT_BYTES, PlannedTensor
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_metadata import gguf_metadata
from tritgold.formats.gguf_rope import ROPE_TENSOR, scaling_keys
from tritgold.formats.gguf_split import COUNT_KEY, NUMBER_KEY, TENSORS_KEY
from tritgold.formats.gguf_split_writer import in_shards, shard_path, write_split
from tritgold.formats.gguf_writer import write_gguf
from tritgold.formats.layouts import I2S_KEY, Layouts, Tile, tile_keys
from tritgold.formats.names import GGUF, written_name
from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.rope_rows import interleaved_rows
from tritgold.formats.texts.gguf_tokenizer import TEXT_KEY
from tritgold.formats.texts.side_texts import KEPT_KEY, texts_as_metadata
from tritgold.ternary import TernaryTensor
from tritgold.weights import VECTORS

# Metadata of a GGUF source about model and tokenizer is copied, except keys that describe the file itself.
_CARRIED = ("general.", "tokenizer.", KEPT_KEY)
_OF_THE_FILE = ("general.architecture", "general.file_type", "general.alignment", "general.quantization_version")
# Types that store the scale as float16 inside the payload.
_F16_SCALE = ("TQ1_0", "TQ2_0", "IQ1_BN", "F16")
# Types that hold a scale for each row.
_ROW_SCALES = ("TQ1_0", "TQ2_0", "IQ1_BN", "IQ2_BN", "IQ2_BN_R4", "F16", "F32")


@dataclass
class GgufPlan(Plan):
    """metadata: all keys of the file. shard_bytes: the most bytes of tensors in a shard; None for one file."""

    metadata: dict[str, Any] = field(default_factory=dict)
    shard_bytes: int | None = None

    def write(self, path: Path) -> None:
        """Write one file, or several shards in one folder."""
        if self.shard_bytes is None:
            write_gguf(path, self.metadata, self.tensors)
        else:
            write_split(path, self.metadata, self.tensors, self.shard_bytes)

    def opened_by(self, path: Path) -> Path:
        """The path of the file, or of its first shard."""
        return path if self.shard_bytes is None else shard_path(path, 1, len(in_shards(self.tensors, self.shard_bytes)))

    def differs(self, written: Checkpoint) -> str | None:
        """The first metadata key that differs from the plan; None if all are equal."""
        assert isinstance(written.container, GgufFile)
        found = {k: v for k, v in written.container.metadata.items() if k not in (NUMBER_KEY, COUNT_KEY, TENSORS_KEY)}
        keys = [key for key in {**self.metadata, **found} if not _same(self.metadata.get(key), found.get(key))]
        return f"key {keys[0]!r}" if keys else None


def _same(first: Any, second: Any) -> bool:
    """Whether a value read is the value written, where a float is written as the nearest float32."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and first.tobytes() == second.tobytes()
    if isinstance(first, float) and isinstance(second, float):
        return np.float32(first).tobytes() == np.float32(second).tobytes()
    return type(first) is type(second) and bool(first == second)


class GgufTarget:
    """Plans a GGUF file.

    architecture: its ``general.architecture``. layouts: of the file, also written into its metadata.
    embedding: F32, F16, BF16, or None to keep the source's. fallback: the type for linears that the target's type
    cannot hold (rows that are not whole blocks), or None to refuse them. round_scales: round a scale to float16 if it
    cannot be stored exactly.
    """

    def __init__(
        self,
        target: Target,
        architecture: str,
        layouts: Layouts,
        embedding: str | None,
        fallback: str | None,
        round_scales: bool,
    ) -> None:
        self.target, self.architecture, self.layouts = target, architecture, layouts
        self.embedding, self.fallback, self.round_scales = embedding, fallback, round_scales

    def plan(self, wanted: Wanted, texts: dict[str, str]) -> GgufPlan:
        """The plan of the file. texts: of the source. ConversionError or PackingError for what it cannot hold."""
        plan = GgufPlan(metadata=self._metadata(wanted, texts))
        if GGUF_ARCHITECTURES[self.architecture].sub_norms and not wanted.config.tied_head:
            raise ConversionError(
                "the model has a head of its own; engines take the embedding for it in files of this architecture",
                kind="untied-head",
                got=self.architecture,
                hint="--to hf and --to sglbitnt keep the head",
            )
        if self.architecture == "bitnet" and wanted.config.activation == "relu2":
            what = "llama.cpp runs SiLU in architecture bitnet whatever the file says; this model has squared ReLU"
            warnings.warn(what, TritgoldWarning, stacklevel=3)
        plan.tensors = list(self._tensors(wanted, plan))
        if self.target.dtype in ("TL1", "TL2"):
            plan.metadata |= tile_keys(self._tiles(wanted))
        if self.target.dtype == "I2_S" or self.fallback == "I2_S":
            plan.metadata[I2S_KEY] = self.layouts.i2_s or "128"
        return plan

    def _metadata(self, wanted: Wanted, texts: dict[str, str]) -> dict[str, Any]:
        """The keys of the graph, and those of model and tokenizer; the latter are copied from a GGUF source."""
        source = wanted.source
        name = source.path.resolve().name.removesuffix(".gguf").removesuffix(".bin")
        name = name.encode("utf-8", "replace").decode()  # a file name need not be valid UTF-8
        own = gguf_metadata(wanted.config, self.architecture, name, self.target.file_type)
        if not isinstance(source.container, GgufFile):
            return own | texts_as_metadata(texts, wanted.config)
        stated = dict(source.container.metadata)
        if source.tokenizer is not None:
            stated[TEXT_KEY] = source.tokenizer
        return own | {k: v for k, v in stated.items() if k.startswith(_CARRIED) and k not in _OF_THE_FILE}

    def _tensors(self, wanted: Wanted, plan: GgufPlan) -> Iterator[PlannedTensor]:
        weights = wanted.source.weights
        for name in ("embedding", "head") if weights.head is not None else ("embedding",):
            matrix = wanted.matrix(name)
            yield planned_matrix(
                written_name(GGUF, name), matrix, matrix_dtype(matrix, self.embedding, wanted.widened, blocks=True)
            )
        for index, layer in enumerate(weights.layers):
            for norm in VECTORS:
                if (gain := getattr(layer, norm)) is not None:
                    yield planned(written_name(GGUF, f"layers.{index}.{norm}"), gain, "F32")
        factors = scaling_keys(wanted.config, GGUF_ARCHITECTURES[self.architecture].permuted)[1]
        if factors is not None:
            yield planned(ROPE_TENSOR, factors, "F32")
        yield planned(written_name(GGUF, "final_norm"), weights.final_norm, "F32")
        for name, shape in wanted.shapes().items():
            yield from self._linear(wanted, plan, name, shape)

    def _linear(self, wanted: Wanted, plan: GgufPlan, name: str, shape: tuple[int, int]) -> Iterator[PlannedTensor]:
        stored_as = written_name(GGUF, name)
        dtype, layout = self._layout(name, shape)
        if dtype != self.target.dtype:
            plan.other_type[stored_as] = dtype
        scales = wanted.scales(name)
        inside: np.ndarray | np.float32
        beside: np.float32 | None
        if scales.ndim and dtype in _ROW_SCALES:
            inside, beside = self._scales_of_rows(name, dtype, scales), None
            layout = packing(dtype.lower(), scales_of="rows") if dtype in FLOAT_BYTES else layout
        else:
            inside, beside = self._scale(wanted, name, dtype, wanted.scale(name))
        plan.scales[name] = inside if beside is None else beside
        order = self._row_order(wanted, name, shape[0])

        def chunks() -> Iterator[bytes]:
            tensor: TernaryTensor = wanted.linear(name)
            if order is None:
                yield layout.pack(tensor.trits, inside)
            else:
                scale = np.asarray(inside)
                yield layout.pack(tensor.trits[order], scale[order] if scale.ndim else scale)

        size = layout.packed_size(shape)
        plan.linear_bytes += size
        yield PlannedTensor(stored_as, dtype, shape, size, chunks)
        if beside is not None:
            yield planned(stored_as.removesuffix(".weight") + ".scale", np.array([beside], np.float32), "F32")

    def _layout(self, name: str, shape: tuple[int, int]) -> tuple[str, Packing]:
        try:
            layout = self.layouts.packing(self.target.dtype, shape)
            layout.packed_size(shape)
            return self.target.dtype, layout
        except PackingError as error:
            if self.fallback is None or error.kind != "packing-shape":
                if error.kind == "packing-shape":
                    error.hint = "--fallback f16 keeps such tensors in another lossless type, and says which"
                raise error.located(thing=f"{name} ({written_name(GGUF, name)})") from None
        layout = self.layouts.packing(self.fallback, shape)
        layout.packed_size(shape)
        return self.fallback, layout

    def _scale(self, wanted: Wanted, name: str, dtype: str, scale: np.float32) -> tuple[np.float32, np.float32 | None]:
        """The scale in the payload, and the scale in a separate tensor ``.scale`` or None."""
        half = scale
        if dtype in _F16_SCALE:
            with np.errstate(over="ignore"):
                half = np.float32(np.float16(scale))
        # A float weight is trit * scale, so a scale that is not positive would be read as other trits.
        if half == scale and (scale > 0 or dtype not in FLOAT_BYTES):
            return scale, None
        if dtype in FLOAT_BYTES and not wanted.linear(name).trits.any():
            return np.float32(1), None  # a float type stores no scale for zeros only
        if self.architecture == "bitnet":  # the only architecture whose readers multiply by a .scale tensor
            return np.float32(1), scale
        if self.round_scales and np.isfinite(half) and (half > 0 or (half < 0 and dtype not in FLOAT_BYTES)):
            return half, None
        raise ConversionError(
            f"{dtype} cannot hold this scale",
            kind="scale-rounded",
            thing=f"{name} ({written_name(GGUF, name)})",
            got=scale,
            expected="a positive float16" if dtype in FLOAT_BYTES else "a float16",
            hint="--round-scales stores the nearest positive one it can; i2_s keeps every float32",
        )

    def _scales_of_rows(self, name: str, dtype: str, scales: np.ndarray) -> np.ndarray:
        """The row scales float32 [out, 1] as the payload will store them; ConversionError if float16 cannot."""
        if dtype not in _F16_SCALE:
            return scales
        with np.errstate(over="ignore"):
            half = scales.astype(np.float16).astype(np.float32)
        if np.array_equal(half, scales) or (self.round_scales and np.isfinite(half).all() and (half != 0).all()):
            return half
        raise ConversionError(
            f"{dtype} cannot hold these scales",
            kind="scale-rounded",
            thing=f"{name} ({written_name(GGUF, name)})",
            got=scales[half != scales][0],
            expected="a float16",
            hint="--round-scales stores the nearest it can; --to iq2_bn keeps every float32",
        )

    def _row_order(self, wanted: Wanted, name: str, rows: int) -> np.ndarray | None:
        """The model's row for each row of the file, int64 [rows], if the architecture permutes q and k; else None."""
        if not GGUF_ARCHITECTURES[self.architecture].permuted or not name.endswith((".q", ".k")):
            return None
        return np.argsort(interleaved_rows(rows, wanted.config.head_dim))

    def _tiles(self, wanted: Wanted) -> dict[tuple[int, int], Tile]:
        found = {shape: self.layouts.tiles.get(shape, self.layouts.tile) for shape in wanted.shapes().values()}
        return {shape: tile for shape, tile in found.items() if tile is not None}
