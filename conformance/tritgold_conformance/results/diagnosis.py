"""The result of a diagnosis, as data."""

from typing import Literal

import msgspec

from tritgold_conformance.comparing.compare import Comparison

SCHEMA = "tritgold.diagnosis/1"
Verdict = Literal[
    "nothing to explain", "nothing found", "named", "named in part", "none of the known faults", "nothing was checked"
]  # fmt: skip
EXIT_CODES: dict[Verdict, int] = {
    "nothing to explain": 0, "nothing found": 0, "named": 1, "named in part": 1, "none of the known faults": 1,
    "nothing was checked": 5,
}  # fmt: skip


class Divergence(msgspec.Struct, kw_only=True):
    """Where an engine first differs from the golden model.

    name: of the output, with its vector's label. position, channel: the first failing element, by position first;
    channel is the flat index after the position axis. None if nothing could be compared. what: the class of the
    failure.
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
    """A fault that was found. distance: from the engine to the golden model with the fault. golden: to it without.

    same: faults with exactly the same outputs on this input. next_best: the nearest other fault and its distance.
    codes: of a fault first seen in codes: how many codes of the text differ from the golden ones, and how many there
    are; edge cases are not counted, and None says that no codes of the text were given.
    tokens_only: the engine shows one token with all of the probability, so the distances say no more than its tokens.
    """

    fault: str
    summary: str
    level: str
    at: str
    distance: float
    golden: float
    same: list[str] = []
    next_best: tuple[str, float] | None = None
    codes: tuple[int, int] | None = None
    tokens_only: bool = False


class Ranked(msgspec.Struct, kw_only=True):
    """A candidate. distance: at the first divergence, or over the whole level. explains: whether it is near enough."""

    fault: str
    distance: float | None
    explains: bool


class Diagnosis(msgspec.Struct, kw_only=True):
    """The JSON of ``tritgold diagnose --json``.

    levels: that the engine gave. faults: found, in execution order; each is corrected before the next is searched for.
    unexplained: divergences that no known fault explains. ranking: the nearest candidates for the first divergence.
    could_not_see: faults that this run would not have shown; no_place: faults that this model cannot have; both null
    if not requested. within: what was ignored because broken ties could have caused it: a diagnosis knows fewer ties
    than the judge. fails: the judge says that the engine does not conform. in_process: the engine's class ran in the
    judge's own process.
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
    within: list[str] = []
    fails: bool = False
    in_process: bool = False

    @property
    def exit_code(self) -> int:
        """0 nothing to explain or found, 1 a fault (known or not) or the judge's failure, 5 nothing was checked."""
        return EXIT_CODES[self.verdict] or int(self.fails)

    @property
    def clean(self) -> bool:
        """Whether every divergence is small enough to be explained by broken ties."""
        return self.verdict in ("nothing to explain", "nothing found")

    @property
    def nothing(self) -> str:
        """The sentence for a clean diagnosis."""
        if self.verdict == "nothing to explain":
            return "Nothing to explain."
        said = f"Nothing found beyond {'; '.join(self.within) or 'what a diagnosis allows'}."
        return said + (
            " The judge knows more ties, and its verdict is valid: it does not conform." if self.fails else ""
        )


def failing(diagnosis: Diagnosis) -> Diagnosis:
    """Mark the diagnosis of an engine that the judge says does not conform: then there is something to explain."""
    diagnosis.fails = True
    if diagnosis.verdict == "nothing to explain":
        diagnosis.verdict = "nothing found"
    return diagnosis


def to_json(diagnosis: Diagnosis) -> bytes:
    """One JSON object. Infinite distances, which JSON does not have, are null."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=1)
