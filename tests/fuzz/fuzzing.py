"""Cases: damage, open, use what opens. Only typed errors, in bounded time and memory, and a way to repeat each case."""

import contextlib
import json
import os
import random
import resource
import signal
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
from refusals import assert_printable
from subject import Subject

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import Options, convert
from tritgold.convert.targets import TARGETS
from tritgold.errors import TritgoldError, TritgoldWarning
from tritgold.formats.layouts import Layouts
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.inspecting.files import ReadOptions
from tritgold_conformance.inspecting.inspection import inspect_model

SEED = 158
SECONDS = 2.0  # of processor time for a case; the slowest sound one takes 0.02
MEGABYTES = 64  # what Python and NumPy may hold for a case; the largest file is 0.2 MB
HEADROOM = 512 * 2**20  # of private memory over what the process has when it begins
# Every so many cases more is done with one: its memory measured, inspected, converted where it opens.
TRACED, INSPECTED, CONVERTED = 60, 40, 40

TILES = {"tl1": {"BM": 32, "BK": 128, "bm": 32}, "tl2": {"BM": 32, "BK": 96}}


class BadEndError(AssertionError):
    """A case that ended in anything but a typed error or a sound model; the message says how to repeat it."""


class _Late(BaseException):
    """Raised by the timer; no ``except Exception`` may swallow it."""


def run_subject(subject: Subject, folder: Path, seed: int, cases: range) -> Counter[str]:
    """Outcomes by kind of error, "opens" among them. folder: empty, on a file system in memory if there is one."""
    outcomes: Counter[str] = Counter()
    here = folder / subject.name
    here.mkdir()
    for name, data in subject.files.items():
        (here / name).write_bytes(data)
    for case in cases:
        outcomes[run_case(subject, here, seed, case)] += 1
    return outcomes


def damage_of(subject: Subject, seed: int, case: int) -> dict[str, bytes]:
    """The changed files of one case: of its own numbers alone, whatever ran before it."""
    return subject.damage(random.Random(f"{subject.name} {seed} {case}"))


def run_case(subject: Subject, here: Path, seed: int, case: int) -> str:
    """The kind of the error that a case ends with, or "opens". here: a folder with the sound files."""
    damaged = damage_of(subject, seed, case)
    try:
        for name, data in damaged.items():
            (here / name).write_bytes(data)
        with _bounded(case):
            return _outcome(here / subject.opened, here, case)
    except (Exception, _Late) as error:
        repeat = f"python tests/fuzz --only {subject.name} --seed {seed} --case {case}"
        raise BadEndError(
            f"{subject.name}, case {case}: {type(error).__name__}: {error}\n  repeat it: {repeat}"
        ) from error
    finally:
        for name in damaged if len(subject.files) > 1 else ():  # the only file is written again by every case
            (here / name).write_bytes(subject.files[name])


def _outcome(path: Path, here: Path, case: int) -> str:
    kind = "opens"
    try:
        checkpoint = open_checkpoint(path)
        use(checkpoint)
    except TritgoldError as error:
        assert_printable(error)
        kind = error.kind
    if case % INSPECTED == 0:
        kind_seen = _typed(lambda: json.dumps(inspect_model(path, ReadOptions(Layouts()))))
        # inspect says more than open, and never less: what opens has an inspection.
        assert kind != "opens" or kind_seen == "", f"opens, yet inspect refuses it: {kind_seen}"
    if kind == "opens" and case % CONVERTED == 1:
        convert_and_look(checkpoint, here, list(TARGETS)[case // CONVERTED % len(TARGETS)])
    return kind


def use(checkpoint: Checkpoint) -> None:
    """Whatever a model is asked for: trits, one finite scale, floats, texts."""
    for name, weight in checkpoint.weights.linears():
        tensor = weight.ternary()
        assert tensor.trits.dtype == np.int8, name
        assert tensor.trits.shape == weight.shape, name
        assert -1 <= tensor.trits.min() <= tensor.trits.max() <= 1, name
        assert tensor.scale.shape in ((), (len(tensor.trits), 1)), name  # TriLM's has one a row
        assert np.isfinite(tensor.scale).all(), name
    config = checkpoint.config
    rows = checkpoint.weights.embedding.rows(slice(0, 2))
    assert rows.shape == (min(2, config.vocab), config.hidden)
    assert rows.dtype == np.float32
    # A model may be sound and its tokenizer not: that is refused when somebody asks for it.
    for ask in (checkpoint.texts, lambda: _tokenizer(checkpoint), checkpoint.chat_template):
        _typed(ask)


def _tokenizer(checkpoint: Checkpoint) -> None:
    text = checkpoint.tokenizer_json()
    if text is not None:
        Tokenizer.from_text(text).encode("ab a")


def _typed(act: Callable[[], object]) -> str:
    """The kind of the typed error that the act ends with, "" where it succeeds."""
    try:
        act()
    except TritgoldError as error:
        assert_printable(error)
        return error.kind
    return ""


def convert_and_look(checkpoint: Checkpoint, here: Path, to: str) -> str:
    """Converted and proved (""), or refused (the kind); whichever it is, nothing else is left beside ``here``."""
    before = sorted(here.parent.iterdir())
    target = here.parent / "converted"
    gguf = TARGETS[to].container == "gguf"
    options = Options(layouts=Layouts(tile=TILES.get(to)), round_scales=gguf, quantize=True)
    refused = _typed(lambda: convert(checkpoint, target, to, options))
    if refused:
        assert sorted(here.parent.iterdir()) == before, f"--to {to} left something behind"
        return refused
    made = set(here.parent.iterdir()) - set(before)
    beside = {target.with_name(f"converted.{name}") for name in ("tokenizer.json", "chat_template.jinja")}
    assert target in made, f"--to {to} left nothing"
    assert made <= {target, *beside}, f"--to {to} left {made}"
    for path in made:
        if path.is_dir():
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
        else:
            path.unlink()
    return refused


@contextlib.contextmanager
def _bounded(case: int) -> Iterator[None]:
    """Time for every case, and one that hangs is stopped. Memory as Python and NumPy account for it, for some: it makes
    a case three times as slow. Warnings are errors, ours apart: damage may leave odd values.
    """

    def late(number: int, frame: FrameType | None) -> None:
        raise _Late(f"more than {5 * SECONDS} s")

    traced = case % TRACED == 2
    handler = signal.signal(signal.SIGVTALRM, late)
    if traced:
        tracemalloc.start()
    begin = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, 5 * SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", TritgoldWarning)
            yield
        took = time.process_time() - begin
        peak = tracemalloc.get_traced_memory()[1] if traced else 0
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        if traced:
            tracemalloc.stop()
    assert took < SECONDS, f"{took:.2f} s"
    assert peak < MEGABYTES * 1e6, f"{peak / 1e6:.1f} MB"


def limit_memory() -> None:
    """For the whole process: a read on the word of a hostile count ends in a MemoryError, traced or not (Linux)."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        used = int(statm.read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_DATA, (used + HEADROOM, used + HEADROOM))
