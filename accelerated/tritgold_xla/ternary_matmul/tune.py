"""The autotuner: which formulation is the fastest on this machine, measured once and stored in a file.

The file holds the choices of any number of machines and versions. Those of other machines and versions are ignored when
the file is read, and kept when it is written.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, Literal

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax import lax

from tritgold.errors import EngineError
from tritgold.formats.whole_file import written_whole
from tritgold.machine import instructions, processor
from tritgold_xla.runtime.cache_folder import cache_folder, require_folder
from tritgold_xla.runtime.chunks import CHUNKS
from tritgold_xla.runtime.flags import cpu_device, jit, threads
from tritgold_xla.ternary_matmul import planes
from tritgold_xla.ternary_matmul.choose import HEAD_SIDES, Measured
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS, Formulation
from tritgold_xla.ternary_matmul.planes import Planes

SCHEMA: Final = "tritgold.xla-tuning/1"

# The edition of the kernels: one more where a formulation has become faster, so that all are timed again.
KERNELS: Final = 1
# Matrices that a program multiplies in order: its temporaries are reused, as over the layers of a model.
MATRICES = 4
# The most multiply-accumulates for which the plain formulation is measured: it does about 1e9 per second.
_PLAIN = 1 << 24
# A formulation that takes this many times the fastest's time in the first round is not measured again.
_HOPELESS = 4
_ROUNDS = 5

_Count = Annotated[int, msgspec.Meta(ge=1)]


class MadeFor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What determines the fastest formulation: versions, processor, threads of XLA, XLA_FLAGS, instruction sets.

    flags: XLA_FLAGS unchanged: some disable instruction sets of the processor (--xla_cpu_max_isa). instructions:
    the processor's sets. kernels: the edition of our kernels. Older files have neither, and so count as files of
    another machine.
    """

    jax: str
    jaxlib: str
    processor: str
    cores: int
    flags: str
    instructions: str = ""
    kernels: int = 0

    @classmethod
    def here(cls) -> "MadeFor":
        """The values of this process."""
        flags = os.environ.get("XLA_FLAGS", "")
        return cls(jax.__version__, version("jaxlib"), processor(), threads(), flags, instructions(), KERNELS)


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"in_": "in"}):
    """The fastest formulation for a matrix [out, in_] and ``tokens`` tokens, or the faster side of a head [out, in_].

    seconds: medians of a product, by name; of a head, of some of its rows.
    """

    out: _Count
    in_: _Count
    tokens: _Count
    formulation: str
    seconds: dict[str, float]


class _Tuning(msgspec.Struct, forbid_unknown_fields=True):
    made_for: MadeFor
    choices: list[Choice]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: Literal["tritgold.xla-tuning/1"]
    tunings: list[_Tuning]


def default_file() -> Path:
    """XDG_CACHE_HOME/tritgold/xla-tuning.json, which the commands use. Raises OutputError as ``cache_folder``."""
    return cache_folder() / "xla-tuning.json"


def measured_here(path: Path) -> tuple[Measured, ...]:
    """The choices in a file that were measured with this machine and these versions; may be empty.

    A formulation that this version of tritgold does not have is passed over.

    Raises EngineError ``tuning-file`` if the file does not exist or was not written by ``tune``.
    """
    here = MadeFor.here()
    choices = [choice for tuning in _read(path) if tuning.made_for == here for choice in tuning.choices]
    ours = {*FORMULATIONS, *HEAD_SIDES}  # others another version of tritgold has measured
    return tuple(measured(choice) for choice in choices if choice.formulation in ours)


def measured(choice: Choice) -> Measured:
    """The choice without its times."""
    return Measured(choice.out, choice.in_, choice.tokens, choice.formulation)


def tune(
    shapes: Iterable[tuple[int, int]],
    tokens: Iterable[int] = CHUNKS,
    path: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Choice]:
    """Measure every formulation for each matrix (out, in) and number of tokens; store the fastest of each in the file.

    path: None for ``default_file``; its folder is created, and the file is written after each matrix. say: called with
    the description of each measurement. The time includes preparing the codes for each matrix, although the engine
    does it once for all matrices that read the same codes.

    Raises, before anything is measured, EngineError ``tuning-size`` for sizes below 1, ``tuning-file`` for a file that
    ``tune`` has not written, and OutputError for a folder that cannot be written. EngineError ``tuning-differs``
    if two formulations do not give the same integers: then nothing is stored for this matrix.
    """
    cpu_device()
    wanted, counts = list(dict.fromkeys(shapes)), list(dict.fromkeys(tokens))
    if not wanted or not counts or min(min(map(min, wanted)), min(counts)) < 1:
        got = f"shapes {wanted}, tokens {counts}"
        raise EngineError("nothing to tune", kind="tuning-size", got=got, expected="sizes of 1 and more")
    file = default_file() if path is None else path
    require_folder(file.parent)
    if file.exists():
        measured_here(file)
    found = []
    for out, in_ in wanted:
        choices = [_fastest(out, in_, count, say) for count in counts]
        keep(file, choices)
        found += choices
    return found


def _fastest(out: int, in_: int, tokens: int, say: Callable[[str], None]) -> Choice:
    say(f"tuning {out} x {in_}, {tokens} tokens")
    rng = np.random.default_rng(158)
    packed = [planes.packed(rng.integers(-1, 2, (out, in_), dtype=np.int8)) for _ in range(MATRICES)]
    weights = Planes(*(jax.numpy.stack(arrays) for arrays in zip(*packed, strict=True)))
    codes = jax.numpy.asarray(rng.integers(-127, 128, (MATRICES, tokens, in_), dtype=np.int8))
    ways = [way for way in FORMULATIONS.values() if way.name != "plain" or out * in_ * tokens <= _PLAIN]
    runs = dict(compiled(ways, codes, weights))
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(_ROUNDS):
        for name, run in runs.items():
            seconds[name].append(seconds_of(name, run))
        if number == 0:
            least = min(times[0] for times in seconds.values())
            runs = {name: run for name, run in runs.items() if seconds[name][0] <= _HOPELESS * least}
    medians = {name: statistics.median(times) / MATRICES for name, times in seconds.items()}
    return Choice(out, in_, tokens, min(runs, key=medians.__getitem__), medians)


def compiled(
    ways: list[Formulation], codes: jax.Array, weights: Planes
) -> Iterator[tuple[str, Callable[[], jax.Array]]]:
    """Each formulation as a program over all matrices, after one run whose result equals the first one's.

    A matrix is read out of the stack by its number, as in the model: that is a part of the time.
    """
    first: np.ndarray | None = None
    for way in ways:

        def all_of(codes: jax.Array, weights: Planes, way: Formulation = way) -> jax.Array:
            each = lax.iota(jnp.int32, codes.shape[0])
            return lax.map(lambda nth: way.accumulate(codes[nth], weights._replace(layer=nth)), each)

        program = jit(all_of)
        sums = np.asarray(program(codes, weights))
        first = sums if first is None else first
        if not np.array_equal(sums, first):
            raise EngineError(
                "formulations of the ternary product do not agree",
                kind="tuning-differs",
                thing=way.name,
                got=f"{np.count_nonzero(sums != first)} of {sums.size} sums differ from those of {ways[0].name}",
                expected="equal integers",
                hint="report it with the versions of jax and jaxlib",
            )
        yield way.name, partial(finished, program, codes, weights)


def finished(program: Callable[..., jax.Array], *arrays: object) -> jax.Array:
    """The result of the program, computed: JAX gives it before it is."""
    return program(*arrays).block_until_ready()


def seconds_of(name: str, run: Callable[[], object]) -> float:
    """Seconds of one call. name: of the formulation, for tests that replace this clock."""
    del name
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def keep(path: Path, choices: list[Choice]) -> None:
    """Store the choices in the file; they replace older ones for the same sizes."""
    here, tunings = MadeFor.here(), _read(path) if path.exists() else []
    new = {_key(choice) for choice in choices}
    mine = [choice for tuning in tunings if tuning.made_for == here for choice in tuning.choices]
    mine = [choice for choice in mine if _key(choice) not in new]
    others = [tuning for tuning in tunings if tuning.made_for != here]
    file = _File(SCHEMA, [*others, _Tuning(here, [*mine, *choices])])
    with written_whole(path) as scratch:
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n")


def _key(choice: Choice) -> tuple[int, int, int, bool]:
    return choice.out, choice.in_, choice.tokens, choice.formulation in HEAD_SIDES


def _read(path: Path) -> list[_Tuning]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File).tunings
    except OSError as error:
        raise _wrong(path, "cannot be read", error.strerror, f"a file of schema {SCHEMA}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(path, "is not what the tuner writes", str(error), f"schema {SCHEMA}") from None


def _wrong(path: Path, message: str, got: object, expected: str) -> EngineError:
    hint = "delete it, and tune again where its choices are wanted: tritgold bench --tune"
    return EngineError(message, kind="tuning-file", file=path, got=got, expected=expected, hint=hint)
