"""Conversion between all formats: open, plan, write one tensor at a time, open the result again and prove it equal.

Converted are names, the order of q and k rows, the direction of the scale, tied head, activation, special
tokens, tokenizer, chat template. Refused are float weights, unless quantising is requested, and shapes and scales
that the target cannot hold. A failure leaves no files, and an existing file is replaced only after the proof.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from math import prod
from pathlib import Path

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.config import ScaleRule
from tritgold.convert.floats import row_slices, same_bits
from tritgold.convert.gguf import GgufTarget
from tritgold.convert.hf import plan_hf
from tritgold.convert.plan import Plan
from tritgold.convert.proof import prove
from tritgold.convert.sglbitnt import plan_sglbitnt
from tritgold.convert.targets import TARGETS, Target, target
from tritgold.convert.wanted import Wanted, wanted
from tritgold.errors import ConversionError, FormatError, OutputError, TritgoldError, TritgoldWarning
from tritgold.formats.container import PlannedTensor, holes
from tritgold.formats.gguf_metadata import default_architecture
from tritgold.formats.layouts import Layouts
from tritgold.formats.stored_weights import MasterWeight, PackedWeight
from tritgold.formats.texts.side_texts import BESIDE, TOKENIZER, other_files, side_files
from tritgold.formats.whole_file import written_beside, written_folder, written_whole

__all__ = ["TARGETS", "Conversion", "Options", "convert"]

HF_SHARD_BYTES = 5_000_000_000
Progress = Callable[[str, int, int], None]  # current tensor or step, bytes done, bytes in total


@dataclass(frozen=True)
class Options:
    """layouts: of the target, such as TL1 and TL2 tiles. quantize: make float masters ternary by absmean.

    architecture: of a GGUF file; None for the one that fits. embedding: dtype of embedding and head, F32, F16 or
    BF16; None keeps the source's. fallback: type of linears that the target's type cannot hold. round_scales: see
    GgufTarget. scale_rule: of a Hugging Face folder; None keeps the source's. shard_bytes: the most in a safetensors
    file (None: 5e9), or in the tensors of a GGUF shard (None: one file). ignore_keys: unknown keys of the source's
    config.json that its reader ignored.
    """

    layouts: Layouts = field(default_factory=Layouts)
    quantize: bool = False
    architecture: str | None = None
    embedding: str | None = None
    fallback: str | None = None
    round_scales: bool = False
    scale_rule: ScaleRule | None = None
    shard_bytes: int | None = None
    ignore_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conversion:
    """The result. path: to open it (first shard). files: files with tensors. types: tensors and bytes by type.
    linears: how many. bits_per_weight: of the linears. other_type: linears stored in another type, name -> type.
    rounded_scales: linears whose scale was rounded to float16. read_as_zero: codes of the source that are not a trit.
    quantised: linears made ternary by absmean. rounded_matrices: embedding or head, if it lost bits.
    """

    target: Target
    path: Path
    files: int
    architecture: str | None
    types: dict[str, tuple[int, int]]
    linears: int
    bits_per_weight: float
    other_type: dict[str, str]
    rounded_scales: int
    read_as_zero: int
    quantised: int = 0
    rounded_matrices: tuple[str, ...] = ()

    def lost(self) -> list[str]:
        """What was lost in the conversion, in words; empty if it is lossless."""
        said = {
            "quantised by absmean: {} linear weights, whose float values are not kept": self.quantised,
            "{} scales rounded to float16, as asked": self.rounded_scales,
            "{} codes that are no trits read as 0, as asked": self.read_as_zero,
        }
        found = [text.format(count) for text, count in said.items() if count]
        return found + [f"{name} rounded, as asked" for name in self.rounded_matrices]


def convert(source: Checkpoint, path: Path, to: str, options: Options, progress: Progress | None = None) -> Conversion:
    """Write an opened checkpoint as ``to``, one of TARGETS, to ``path``: a file, or a new folder for ``hf``.

    The result appears at ``path`` only after it has been opened again and proved equal. Raises ConversionError,
    PackingError, OutputError, or the errors of the readers.
    """
    kind = target(to)
    _check_options(kind, options)
    _check_whole(source)
    path = path.resolve() if path.is_symlink() else path
    rule: ScaleRule = options.scale_rule or source.config.scale_rule if kind.container == "hf" else "multiply"
    want, texts = wanted(source, rule, options.quantize, options.ignore_keys), source.texts()
    if TOKENIZER not in texts and kind.container != "hf" and (left := other_files(source.path)):
        what = f"no tokenizer.json: {', '.join(file.name for file in left)} cannot go along"
        warnings.warn(what, TritgoldWarning, stacklevel=2)
    architecture, plan = _plan(kind, want, texts, options)
    if progress:
        plan.tensors = list(_counted(plan.tensors, progress))
    beside = side_files(texts) if kind.container == "sglbitnt" else {}
    split = kind.container == "gguf" and options.shard_bytes is not None
    place = written_folder if kind.container == "hf" else written_beside if split else written_whole
    with (
        place(path) as scratch,
        _written_beside(path, scratch, beside) if kind.container == "sglbitnt" else nullcontext(),
    ):
        plan.write(scratch)
        if progress:
            progress("proving", 0, 0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TritgoldWarning)  # the source gave the same warnings
                written = open_checkpoint(plan.opened_by(scratch), ignore_keys=options.ignore_keys)
                prove(want, plan, written)
        except TritgoldError as error:
            raise error.located(file=path) if error.file is None else error.moved(scratch, path) from None
        return _summary(kind, architecture, want, plan, written, plan.opened_by(path))


def _check_whole(source: Checkpoint) -> None:
    """Refuse a file with holes: they read as zero bytes, which are valid weights."""
    for file in {tensor.file for tensor in source.container.tensors.values()}:
        if found := holes(file):
            begin, end = found[0]
            raise FormatError(
                "was never written in places, and reads as zero bytes there",
                kind="sparse",
                file=file,
                got=f"a hole from byte {begin} to {end}",
                hint="download it again; a sound file that was stored sparsely: cp --sparse=never",
            )


def _plan(kind: Target, want: Wanted, texts: dict[str, str], options: Options) -> tuple[str | None, Plan]:
    """(architecture of a GGUF file, plan)."""
    if kind.container == "hf":
        return None, plan_hf(want, texts, options.embedding, options.shard_bytes or HF_SHARD_BYTES)
    if kind.container == "sglbitnt":
        return None, plan_sglbitnt(want, texts)
    architecture = options.architecture or default_architecture(want.config)
    gguf = GgufTarget(kind, architecture, options.layouts, options.embedding, options.fallback, options.round_scales)
    plan = gguf.plan(want, texts)
    plan.shard_bytes = options.shard_bytes
    return architecture, plan


def _check_options(kind: Target, options: Options) -> None:
    """Refuse an option that this target ignores: the caller expects it to have an effect."""
    used = _USED[kind.container] | {"quantize", "ignore_keys"}
    standard = Options()
    for name in (option.name for option in fields(options)):
        if name not in used and (got := getattr(options, name)) != getattr(standard, name):
            what = f"--to {kind.name} has no use for {name}"
            raise ConversionError(what, kind="option-unused", got=got, expected=sorted(used))


_USED = {
    "hf": {"embedding", "scale_rule", "shard_bytes"},
    "gguf": {"layouts", "architecture", "embedding", "fallback", "round_scales", "shard_bytes"},
    "sglbitnt": set[str](),
}


@contextmanager
def _written_beside(path: Path, scratch: Path, texts: dict[str, str]) -> Iterator[None]:
    """Write the text files beside the scratch file; rename them to ``<path>.<name>`` if the block ends well.

    Raises OutputError ``exists`` if a text file of an earlier model would be read with this file.
    """
    for name in BESIDE:
        stale = path.with_name(f"{path.name}.{name}")
        if stale.exists() and (name not in texts or not stale.is_file()):
            hint = "it belongs to another model, and would be read with this one: remove it"
            raise OutputError("is there already", kind="exists", file=stale, hint=hint)
    with ExitStack() as stack:
        for name, text in texts.items():
            file = scratch.with_name(f"{scratch.name}.{name}")
            stack.callback(file.unlink, missing_ok=True)
            try:
                file.write_bytes(text.encode())
            except UnicodeEncodeError as error:
                raise OutputError(f"cannot be UTF-8: {error.reason}", kind="value", file=path, thing=name) from None
        yield
        for name in texts:
            scratch.with_name(f"{scratch.name}.{name}").replace(path.with_name(f"{path.name}.{name}"))


def _counted(tensors: list[PlannedTensor], progress: Progress) -> Iterator[PlannedTensor]:
    """The same tensors; they call ``progress`` after each piece."""
    total, done = sum(tensor.size for tensor in tensors), 0

    def counting(tensor: PlannedTensor) -> Callable[[], Iterator[bytes | memoryview]]:
        def chunks() -> Iterator[bytes | memoryview]:
            nonlocal done
            for piece in tensor.chunks():
                yield piece
                done += len(piece)
                progress(tensor.name, done, total)

        return chunks

    return (replace(tensor, chunks=counting(tensor)) for tensor in tensors)


def _summary(
    kind: Target, architecture: str | None, want: Wanted, plan: Plan, written: Checkpoint, path: Path
) -> Conversion:
    """The summary, counted in the opened result."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for tensor in written.container.tensors.values():
        counts[tensor.dtype] += 1
        sizes[tensor.dtype] += tensor.data.size
    weights = [prod(shape) for shape in want.shapes().values()]
    return Conversion(
        target=kind,
        path=path,
        files=len({tensor.file for tensor in written.container.tensors.values()}),
        architecture=architecture,
        types={dtype: (counts[dtype], sizes[dtype]) for dtype in sorted(counts)},
        linears=len(weights),
        bits_per_weight=8 * plan.linear_bytes / sum(weights),
        other_type=plan.other_type,
        rounded_scales=sum(bool(np.any(want.scales(name) != scale)) for name, scale in plan.scales.items()),
        read_as_zero=sum(w.read_as_zero() for _, w in want.source.weights.linears() if isinstance(w, PackedWeight)),
        quantised=sum(isinstance(w, MasterWeight) for _, w in want.source.weights.linears()),
        rounded_matrices=tuple(name for name in ("embedding", "head") if _rounds(want, written, name)),
    )


def _rounds(want: Wanted, written: Checkpoint, name: str) -> bool:
    """Whether embedding or head was rounded. Not checked if the type holds all of the source's values."""
    source, result = getattr(want.source.weights, name), getattr(written.weights, name)
    if source is None or source.dtype == result.dtype or result.dtype == "F32":
        return False
    return any(not same_bits(source.rows(rows), result.rows(rows)) for rows in row_slices(source))
