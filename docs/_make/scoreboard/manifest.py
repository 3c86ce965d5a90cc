"""What engines there are, how to get them and what each is judged on, as data: ``engines.toml``."""

from pathlib import Path
from typing import Literal

import msgspec

from tritgold.errors import FormatError

FILE = Path(__file__).with_name("engines.toml")


class Case(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """What an engine is judged on: one file, in one mode and policy.

    format: see ``model_files``. model: an embedded model, a model of ``model_files``, or ``fixture/NAME`` of
    tests/peers. architecture, embedding: of a GGUF file. silu: the same weights with SiLU in their config.
    vocabulary: ``plain`` words, for engines that show no log-probabilities for parts of characters; ``marked``, in
    which token 7 is ``<7>`` in any text, for engines that take and show text alone; else the model's own.
    mode: the arithmetic that the engine claims. policy: its declared precision; "" for float32.
    served: asked through the engine's server. options: words after the engine's way in. note: what is special.

    A case on ``kjv-ar`` is timed beside the JAX engine on the same file; one on ``skills-ar`` also gets its exam.
    """

    format: str
    model: str = "seeded"
    architecture: str = ""
    embedding: str = ""
    silu: bool = False
    vocabulary: Literal["", "plain", "marked"] = ""
    mode: str = "golden"
    policy: str = ""
    served: bool = False
    options: str = ""
    note: str = ""


class Install(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """pip, npm: packages of a registry, with ``{version}``. cc: a C file of this repository.

    extra: words for pip before the packages. python: the versions of Python that its packages take, best first.
    variable: the environment variable that names a program which its user has built.
    """

    pip: list[str] = []
    npm: list[str] = []
    cc: str = ""
    extra: list[str] = []
    python: list[str] = []
    variable: str = ""


class EngineEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An engine.

    way: as for ``--engine``, with the placeholders of ``environments.Place``. server: words that start its server for
    ``{model}`` at ``{port}``. served_way: as for ``--engine`` while the server runs. opens: formats that it claims to
    open. not_asked: of these, the ones without a case, and why. gaps: what is known to be missing. no_exam: why it
    answers no questions. build: how its user
    builds it. unavailable: why it is not judged; then nothing is installed.
    """

    name: str
    versions: list[str]
    languages: list[str]
    source: str
    way: str = ""
    server: list[str] = []
    served_way: str = "http://127.0.0.1:{port}?logprobs=2048"
    install: Install = msgspec.field(default_factory=Install)
    opens: list[str] = []
    not_asked: dict[str, str] = {}
    cases: list[Case] = []
    gaps: list[str] = []
    no_exam: str = ""
    build: str = ""
    unavailable: str = ""


class Manifest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    schema: Literal["tritgold.scoreboard-engines/1"]
    engine: list[EngineEntry]


def manifest(file: Path = FILE) -> list[EngineEntry]:
    """The engines, in the order of the page.

    Raises FormatError if the file is not a manifest, a name stands there twice, an entry has neither a way in with
    cases and versions nor the reason why it is unavailable, or a format that it opens has neither a case nor a reason.
    """
    try:
        found = msgspec.toml.decode(file.read_bytes(), type=Manifest).engine
    except (OSError, ValueError) as error:
        raise FormatError(f"is not a manifest of engines: {error}", kind="manifest", file=file) from None
    names = [engine.name for engine in found]
    for engine in found:
        if names.count(engine.name) > 1:
            raise FormatError("is there twice", kind="manifest", file=file, thing=engine.name)
        judged = bool(engine.way or engine.server) and bool(engine.cases) and bool(engine.versions)
        if judged == bool(engine.unavailable):
            what = "needs versions, cases and a way in, or the reason why it is unavailable"
            raise FormatError(what, kind="manifest", file=file, thing=engine.name)
        without = set(engine.opens) - {case.format for case in engine.cases} - set(engine.not_asked)
        if judged and without:
            what = f"opens {', '.join(sorted(without))} without a case or a reason in not_asked"
            raise FormatError(what, kind="manifest", file=file, thing=engine.name)
    return found
