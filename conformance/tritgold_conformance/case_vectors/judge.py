"""Somebody's answers against the expected ones: a folder of outputs, group by group, case by case. Fails closed.

What was written is untrusted and read with our own strict reader. Within a group that was answered at all, an output
that is missing fails, and so does one that nobody asked for; what an engine does not have it says in ``skipped``.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from tritgold.errors import EngineError, FormatError
from tritgold.formats.container import StoredTensor
from tritgold.formats.safetensors_file import SafetensorsFile
from tritgold.formats.untrusted_text import printable, read_text
from tritgold_conformance.case_vectors.allowed import from_data
from tritgold_conformance.case_vectors.case import CASES, EXPECTED, Answers, Case, Cases, Manifest, Output, Status
from tritgold_conformance.case_vectors.manifest import LARGEST
from tritgold_conformance.case_vectors.rules import rules
from tritgold_conformance.comparing.compare import MISSING, Comparison, compare, refused
from tritgold_conformance.engines.exchange import ANSWER, NUMBERS, OUTPUTS, PROTOCOL

OVERFLOW = "int16-wraps"  # the fault of which an engine that multiplies at all must have run a case
UNSPECIFIED = "unspecified"  # what an engine says that has no word for why it refuses a file


@dataclass(frozen=True)
class Verdict:
    """One case. what: why it failed or was not assessed. comparisons: of its arrays. flags: of the case."""

    case: str
    status: Status
    what: str = ""
    comparisons: list[Comparison] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Judgement:
    """All verdicts in the order of the folder. unknown: folders of answers that are of no group."""

    verdicts: list[Verdict]
    unknown: list[str] = field(default_factory=list)

    def count(self, status: Status) -> int:
        """Cases of this status."""
        return sum(v.status == status for v in self.verdicts)

    @property
    def suspects(self) -> dict[str, int]:
        """Fault -> failed cases that are there for it; first those of which no case passed, then the most frequent.

        A case fails with every fault that it is there for: one that passes speaks against them all, at least for what
        it is about. What was not returned at all speaks for none.
        """
        wrong = [v for v in self.verdicts if v.status == "failed" and not v.what.endswith(MISSING)]
        counts = Counter(flag for v in wrong for flag in v.flags)
        passed = Counter(flag for v in self.verdicts if v.status == "passed" for flag in v.flags)
        return dict(sorted(counts.items(), key=lambda item: (passed[item[0]], -item[1])))

    def passed_for(self, fault: str) -> int:
        """Cases there for a fault that passed."""
        return sum(v.status == "passed" and fault in v.flags for v in self.verdicts)

    @property
    def rules(self) -> dict[str, str]:
        """Series of cases that fail by a rule."""
        by_status = {s: [v.case for v in self.verdicts if v.status == s] for s in ("failed", "passed")}
        return rules(by_status["failed"], by_status["passed"])

    @property
    def without_overflow(self) -> bool:
        """Products were answered, and of the cases whose sums leave int16 none: that is how overflows stay unseen."""
        there_for = {v.status for v in self.verdicts if OVERFLOW in v.flags}
        return there_for == {"not assessed"}

    @property
    def exit_code(self) -> int:
        """0: all that was assessed passed; 1: not; 5: nothing was assessed, or no sum that leaves int16."""
        if self.count("failed"):
            return 1
        return 0 if self.count("passed") and not self.without_overflow else 5


def judge(folder: Path, answers: Path, manifest: Manifest, only: str = "") -> Judgement:
    """Every case of a folder, which has been checked, against a folder of answers. only: the id of one case or group.

    Raises EngineError: ``engine-output`` for answers that cannot be read, ``case-name`` for a case that is none.
    """
    if not answers.is_dir():
        raise _unreadable("is no folder", answers, hint="answers lie in ANSWERS/<group>/outputs.safetensors")
    verdicts = []
    for group in manifest.groups:
        if only and not (only == group or only.startswith(f"{group}/")):
            continue
        cases = msgspec.json.decode((folder / group / CASES).read_bytes(), type=Cases)
        verdicts += [v for v in _judge_group(folder / group, answers / group, cases) if only in ("", group, v.case)]
    if only and not verdicts:
        raise EngineError(
            "no such case or group", kind="case-name", got=printable(repr(only)), hint="see manifest.json"
        )
    return Judgement(verdicts, _unknown(answers, manifest))


def _unknown(answers: Path, manifest: Manifest) -> list[str]:
    """Folders with answers whose name is that of no group, misspelt for example."""
    there = (file for name in (OUTPUTS, ANSWER) for depth in ("*", "*/*") for file in answers.glob(f"{depth}/{name}"))
    return sorted({file.parent.relative_to(answers).as_posix() for file in there} - set(manifest.groups))


def _judge_group(folder: Path, answers: Path, group: Cases) -> Iterator[Verdict]:
    given, outputs = _answers(answers), answers / OUTPUTS
    arrays = _arrays(outputs) if outputs.exists() or outputs.is_symlink() else {}
    if not answers.is_dir() or (not arrays and not (given.refused or given.texts or given.skipped)):
        for case in group.cases:
            yield Verdict(f"{group.group}/{case.name}", "not assessed", "the group was not answered")
        return
    right = _arrays(folder / EXPECTED) if (folder / EXPECTED).exists() else {}
    for case in group.cases:
        verdict = _judge_case(case, right, arrays, given)
        yield Verdict(f"{group.group}/{case.name}", *verdict, flags=case.flags)
    known = {output.array for case in group.cases for output in case.outputs.values()}
    names = {case.name for case in group.cases}
    extra = sorted(n for n in arrays if n not in known and not n.startswith("trace/"))
    extra += sorted((given.refused.keys() | given.texts.keys()) - names)
    for name in extra:
        shown = printable(name)
        yield Verdict(f"{group.group}/{shown}", "failed", "was answered, and nobody asked for it")


def _judge_case(
    case: Case, right: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray], given: Answers
) -> tuple[Status, str, list[Comparison]]:
    own = {role: arrays[output.array] for role, output in case.outputs.items() if output.array in arrays}
    said = given.refused.get(case.name)
    if _skipped(case.name, given.skipped) and not own and said is None and case.name not in given.texts:
        return "not assessed", "the engine says that it does not have it", []
    if case.refused is not None:
        return (*_refusal(case.refused, said, given.texts.get(case.name)), [])
    if said is not None:
        return "failed", f"was refused ({printable(said)}), and is right", []
    if case.texts is not None:
        texts = given.texts.get(case.name)
        if texts == case.texts:
            return "passed", "", []
        return (
            "failed",
            "no texts" if texts is None else f"texts {printable(texts)}, expected {printable(case.texts)}",
            [],
        )
    comparisons = [
        _compared(output, right, own.get(role))
        for role, output in case.outputs.items()
        if role in own or not output.optional
    ]
    wrong = [c for c in comparisons if not c.passed]
    if not comparisons:
        return "failed", MISSING, []
    return ("failed", f"{wrong[0].name}: {wrong[0].what}", comparisons) if wrong else ("passed", "", comparisons)


def _refusal(right: str, said: str | None, texts: object) -> tuple[Status, str]:
    if said is None:
        return "failed", f"was not refused; expected {right}" + (", and texts were given" if texts else "")
    if said == right:
        return "passed", ""
    if said == UNSPECIFIED:
        return "not assessed", f"was refused, and not said why; expected {right}"
    return "failed", f"was refused for another reason: {printable(said)}, expected {right}"


def _compared(output: Output, right: Mapping[str, np.ndarray], value: np.ndarray | None) -> Comparison:
    golden = right[output.array]
    if value is not None and golden.dtype.kind in "iu" and value.dtype.kind not in "iu":
        return refused(output.array, golden, f"dtype {value.dtype}, expected an integer type like {golden.dtype}")
    return compare(output.array, golden, value, from_data(output.allowed, right))


def _skipped(name: str, skipped: list[str]) -> bool:
    return any(name == s or (s.endswith("*") and name.startswith(s[:-1])) for s in skipped)


def _answers(folder: Path) -> Answers:
    path = folder / ANSWER
    if not path.exists():
        return Answers()
    try:
        found = msgspec.json.decode(read_text(path, LARGEST), type=Answers)
    except (msgspec.MsgspecError, FormatError, ValueError, OSError, RecursionError) as error:
        raise _unreadable(f"cannot be read: {printable(error)}", path) from None
    if found.protocol not in ("", PROTOCOL):
        raise _unreadable("is of another protocol", path, printable(found.protocol), PROTOCOL)
    return found


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        return {name: _array(path, tensor) for name, tensor in SafetensorsFile(path).tensors.items()}
    except FormatError as error:
        where = f"{error.thing}: " if error.thing else ""
        raise _unreadable(f"{where}{error.message}", path, error.got, error.expected) from None


def _array(path: Path, tensor: StoredTensor) -> np.ndarray:
    if tensor.dtype in ("F16", "BF16"):
        return tensor.floats()
    if tensor.dtype not in NUMBERS:
        expected = ", ".join([*NUMBERS, "F16", "BF16"])
        raise _unreadable(f"{printable(repr(tensor.name))} has a dtype of no use", path, tensor.dtype, expected)
    return tensor.data.copy().view(NUMBERS[tensor.dtype]).reshape(tensor.shape)


def _unreadable(
    message: str, path: Path, got: object = None, expected: object = None, hint: str = "docs/vectors.md"
) -> EngineError:
    return EngineError(message, kind="engine-output", file=path, got=got, expected=expected, hint=hint)
