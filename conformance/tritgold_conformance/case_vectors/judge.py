"""Compares an engine's answers with the expected ones: a folder of outputs, by group and case. Fails closed.

Answers are untrusted and are read with tritgold's own strict reader. In a group with answers, a missing output
fails, and so does an output that was not requested; cases that an engine does not have are listed in ``skipped``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from tritgold.errors import EngineError, FormatError
from tritgold.formats.container import StoredTensor
from tritgold.formats.safetensors_file import SafetensorsFile
from tritgold.formats.untrusted_text import printable, read_text
from tritgold_conformance.case_vectors.allowed import from_data
from tritgold_conformance.case_vectors.case import CASES, EXPECTED, Answers, Case, Cases, Manifest, Output, Status
from tritgold_conformance.case_vectors.judgement import Judgement, Verdict
from tritgold_conformance.case_vectors.manifest import LARGEST
from tritgold_conformance.comparing.compare import MISSING, Comparison, compare, refused
from tritgold_conformance.engines.exchange import ANSWER, NUMBERS, OUTPUTS, PROTOCOL

UNSPECIFIED = "unspecified"  # for an engine that does not say why it refuses a file


def judge(folder: Path, answers: Path, manifest: Manifest, only: str = "") -> Judgement:
    """Judge every case of a checked folder by a folder of answers. only: the id of one case or group.

    Raises EngineError: ``engine-output`` for answers that cannot be read, ``case-name`` for a case that does not exist.
    """
    if not answers.is_dir():
        raise _unreadable("is not a folder", answers, hint="answers belong in ANSWERS/<group>/outputs.safetensors")
    verdicts = []
    for group in manifest.groups:
        if only and not (only == group or only.startswith(f"{group}/")):
            continue
        cases = msgspec.json.decode((folder / group / CASES).read_bytes(), type=Cases)
        verdicts += [v for v in _judge_group(folder / group, answers / group, cases) if only in ("", group, v.case)]
    if only and not verdicts:
        got = printable(repr(only))
        raise EngineError("no such case or group", kind="case-name", got=got, hint="see manifest.json")
    return Judgement(verdicts, _unknown(answers, manifest))


def _unknown(answers: Path, manifest: Manifest) -> list[str]:
    """Folders with answers that do not have the name of a group, for example misspelt ones."""
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
        yield Verdict(f"{group.group}/{shown}", "failed", "was answered but not requested")


def _judge_case(
    case: Case, right: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray], given: Answers
) -> tuple[Status, str, list[Comparison]]:
    own = {role: arrays[output.array] for role, output in case.outputs.items() if output.array in arrays}
    said = given.refused.get(case.name)
    if _skipped(case.name, given.skipped) and not own and said is None and case.name not in given.texts:
        return "not assessed", "the engine lists it as skipped", []
    if case.refused is not None:
        return (*_refusal(case.refused, said, given.texts.get(case.name)), [])
    if said is not None:
        return "failed", f"was refused ({printable(said)}), but is valid", []
    if case.texts is not None:
        texts = given.texts.get(case.name)
        if texts == case.texts:
            return "passed", "", []
        what = "no texts" if texts is None else f"texts {printable(texts)}, expected {printable(case.texts)}"
        return "failed", what, []
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
        return "not assessed", f"was refused without a reason; expected {right}"
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
        raise _unreadable(f"{printable(repr(tensor.name))} has an unusable dtype", path, tensor.dtype, expected)
    return tensor.data.copy().view(NUMBERS[tensor.dtype]).reshape(tensor.shape)


def _unreadable(
    message: str, path: Path, got: object = None, expected: object = None, hint: str = "docs/vectors.md"
) -> EngineError:
    return EngineError(message, kind="engine-output", file=path, got=got, expected=expected, hint=hint)
