"""The answer of a diagnosis, as data."""

from typing import Literal

import msgspec

from tritgold_conformance.compare import Comparison

SCHEMA = "tritgold.diagnosis/1"
Verdict = Literal["nothing to explain", "named", "named in part", "none of the known faults", "nothing was checked"]
EXIT_CODES: dict[Verdict, int] = {
    "nothing to explain": 0, "named": 1, "named in part": 1, "none of the known faults": 1, "nothing was checked": 5,
}  # fmt: skip


class Divergence(msgspec.Struct, kw_only=True):
    """Where an engine first leaves the golden model.

    name: of the output, with its vector's label. position, channel: the first element that fails, position first;
    channel counts what lies behind the position, flat. None where nothing could be compared. what: the class of it.
    """

    name: str
    level: str
    operation: str
    layer: int | None
    position: int | None
    channel: int | None
    comparison: Comparison
    what: str


class Named(msgspec.Struct, kw_only=True):
    """A fault that was found. distance: from the engine to the golden model with it. golden: without it.

    same: faults that say exactly the same on this input. next_best: the nearest other one and its distance.
    """

    fault: str
    summary: str
    level: str
    at: str
    distance: float
    golden: float
    same: list[str] = []
    next_best: tuple[str, float] | None = None


class Ranked(msgspec.Struct, kw_only=True):
    """A candidate. distance: at the first divergence, or of the whole level. explains: it is near enough."""

    fault: str
    distance: float | None
    explains: bool


class Diagnosis(msgspec.Struct, kw_only=True):
    """What ``tritgold diagnose --json`` prints.

    levels: that the engine gave. faults: found, in execution order; each is repaired before the next is looked for.
    unexplained: divergences that no known fault explains. ranking: the nearest candidates for the first divergence.
    could_not_see: faults that this run would not have shown; no_place: faults that this model has no place for. None
    where it was not asked.
    """

    schema: str = SCHEMA
    verdict: Verdict
    engine: str
    model: str
    model_hash: str
    tokens: list[int]
    levels: list[str]
    first_divergence: Divergence | None
    faults: list[Named]
    unexplained: list[Divergence]
    ranking: list[Ranked]
    could_not_see: list[str] | None = None
    no_place: list[str] | None = None

    @property
    def exit_code(self) -> int:
        """0 nothing to explain, 1 a fault, known or not, 5 nothing was checked."""
        return EXIT_CODES[self.verdict]


def to_json(diagnosis: Diagnosis) -> bytes:
    """One JSON object. Infinite distances, which JSON has not, are null."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=1)
