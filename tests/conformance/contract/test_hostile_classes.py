"""Python classes that misbehave: what is of another form than was asked for cannot be judged, and is never a pass."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from asked_once import judge

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import EngineError
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.contract.clock import measure_speed
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults.packing import FORMATS
from tritgold_conformance.golden.reference_engine import ReferenceEngine
from tritgold_conformance.golden.run import GoldenRun, judging_tokens
from tritgold_conformance.questions.packed_bytes import cases
from tritgold_conformance.results.levels import OF_THE_LADDER
from tritgold_conformance.results.report import Report

SMALL = Shape(seed=9, hidden=64, inter=96, layers=2, heads=4, kv_heads=2, context=32)
COUNT, VOCAB = 9, 259


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenRun:
    folder = tmp_path_factory.mktemp("small")
    write_seeded_model(folder, SMALL)
    return GoldenRun.of(open_checkpoint(folder), judging_tokens(COUNT, VOCAB, seed=3))


class Right(ReferenceEngine):
    """Right in everything; the tests replace one method."""

    def complete(self, tokens: list[int]) -> Any:
        self.reset()
        return int(np.argmax(self.prefill(tokens)[-1])), {}

    def unpack(self, name: str, data: bytes, shape: tuple[int, int]) -> Any:
        return FORMATS[name].unpack(data, shape, warn=False).dense()

    def statistics(self, tokens: list[int]) -> Any:
        act = ReferenceEngine.trace(self, tokens).arrays["layers.0.ffn_act"]
        return {"layers.0.ffn_act": {"zeros": float((act == 0).mean())}}


def judged(golden: GoldenRun, **members: Any) -> Report:
    engine = type("Hostile", (Right,), members)(golden.checkpoint, COUNT)
    return judge(golden, EngineUnderTest(engine), "small", with_speed=False)


def changed(name: str, change: Callable[[Any], Any]) -> dict[str, Any]:
    """A method whose answer is the right one, changed."""

    def method(self: Any, *arguments: Any) -> Any:
        return change(getattr(super(type(self), self), name)(*arguments))

    return {name: method}


def returning(name: str, answer: Callable[[], Any]) -> dict[str, Any]:
    return {name: lambda self, *arguments: answer()}


def raising(name: str, error: BaseException) -> dict[str, Any]:
    def method(self: Any, *arguments: Any) -> Any:
        raise error

    return {name: method}


def one_output(change: Callable[[np.ndarray], Any], role: str = "codes") -> dict[str, Any]:
    return changed("operation", lambda out: {**out, role: change(out[role])} if role in out else out)


def in_trace(change: Callable[[np.ndarray], Any], name: str = "layers.1.v.acc") -> dict[str, Any]:
    return changed("trace", lambda trace: {**trace.arrays, name: change(trace.arrays[name])})


def test_the_right_one_conforms_on_every_level(golden: GoldenRun) -> None:
    """A control: without a change, nothing below would be refused."""
    report = judged(golden)
    absent = {name for name, level in report.levels.items() if level.status == "not assessed"}
    assert absent == {"timed", *OF_THE_LADDER, "generate", "serve", "diffuse", "encode", "chat", "stream", "accuracy"}
    assert {level.status for name, level in report.levels.items() if name not in absent} == {"passed"}


FORM: dict[str, tuple[dict[str, Any], str]] = {
    "rows missing": (changed("prefill", lambda x: x[:-1]), r"logits has another shape: found \[8, 259\]"),
    "columns missing": (changed("prefill", lambda x: x[:, :-1]), r"found \[9, 258\], expected \[9, 259\]"),
    "a batch": (changed("prefill", lambda x: x[None]), r"found \[1, 9, 259\]"),
    "transposed": (changed("prefill", lambda x: x.T), r"found \[259, 9\]"),
    "a number": (returning("prefill", lambda: 1.0), "another shape"),
    "truth": (changed("prefill", lambda x: x > 0), "found bool, expected floats"),
    "objects": (changed("prefill", lambda x: x.astype(object)), "found object"),
    "None within": (changed("prefill", lambda x: [[None] * VOCAB] * len(x)), "found object"),
    "texts": (changed("prefill", lambda x: x.astype(str)), "is not an array of numbers"),
    "complex": (changed("prefill", lambda x: x + 0j), "found complex64"),
    "dates": (changed("prefill", lambda x: np.zeros(x.shape, "M8[s]")), "is not an array of numbers"),
    "a text": (returning("prefill", lambda: "1.0"), "is not an array of numbers"),
    "a generator": (changed("prefill", lambda x: (row for row in x)), "found object"),
    "rows of several lengths": (changed("prefill", lambda x: [[1.0], [1.0, 2.0]]), "prefill failed: ValueError"),
    "a terabyte": (returning("prefill", lambda: np.broadcast_to(np.float32(1), (10**6, 10**6))), "another shape"),
    "an array that raises": (
        returning("prefill", lambda: type("Lazy", (), {"__array__": lambda *_, **__: 1 / 0})()),
        "the answer of prefill failed: ZeroDivisionError",
    ),
    "step without columns": (changed("step", lambda x: x[:-1]), "the row of logits has another shape"),
    "step twice": (changed("step", lambda x: np.stack([x, x])), "the row of logits has another shape"),
    "step empty": (returning("step", list), "the row of logits has another shape"),
    "codes as floats": (one_output(lambda x: x.astype(np.float32)), "attn_in, codes holds no integers: found float32"),
    "codes of truth": (one_output(lambda x: x > 0), "is not an array of numbers"),
    "operation, shape": (one_output(lambda x: x[:, :-1]), "layers.0.attn_in, codes has another shape"),
    "operation, scale": (one_output(lambda x: x[:, None], "scale"), r"scale has another shape: found \[9, 1\]"),
    "operation, a role": (changed("operation", lambda out: {**out, "y": 1}), "other roles: found y, expected x"),
    "operation, nothing": (changed("operation", lambda out: {}), "other roles: found nothing, expected x"),
    "operation, an array": (changed("operation", lambda out: out.get("x", 1)), "is not {name: array}"),
    "operation, a list": (changed("operation", lambda out: [1.0]), "is not {name: array}"),
    "trace, shape": (in_trace(lambda x: x.T), "layers.1.v.acc has another shape"),
    "trace, floats": (in_trace(lambda x: x.astype(np.float64)), "layers.1.v.acc holds no integers"),
    "trace, a list": (returning("trace", lambda: [1, 2]), "is not {name: array}"),
    "trace, objects": (in_trace(lambda x: x.astype(object)), "found object"),
    "statistics, a list": (returning("statistics", lambda: [1]), "is not {name: {moment: number}}"),
    "statistics, a text": (returning("statistics", lambda: {"logits": {"rms": "1.0"}}), "is not a number"),
    "complete, a number": (returning("complete", lambda: 7), "is not a pair"),
    "complete, a float": (returning("complete", lambda: (7.5, {})), "is not a pair"),
    "complete, a text": (returning("complete", lambda: ("7", {})), "is not a pair"),
    "complete, log-probabilities": (returning("complete", lambda: (7, {7: "-1"})), "is not a number"),
    "complete, ids": (returning("complete", lambda: (7, {7.5: -1.0})), "is not a pair"),
    "unpack, shape": (changed("unpack", lambda x: x.T), "hf unpacked has another shape"),
    "unpack, texts": (changed("unpack", lambda x: x.astype(str)), "is not an array of numbers"),
}


@pytest.mark.parametrize("case", FORM)
def test_an_answer_of_another_form_cannot_be_judged(golden: GoldenRun, case: str) -> None:
    members, says = FORM[case]
    with pytest.raises(EngineError, match=says) as refused:
        judged(golden, **members)
    assert refused.value.kind == "engine-output"


class Odd(BaseException):
    """No Exception, as pytest's own outcomes are none."""


RAISES: dict[str, tuple[dict[str, Any], str]] = {
    "exit": (raising("prefill", SystemExit(0)), "prefill failed: SystemExit: 0"),
    "skip": (raising("step", pytest.skip.Exception("not today")), "step failed: Skipped"),
    "no exception": (raising("trace", Odd()), "trace failed: Odd"),
    "memory": (raising("prefill", MemoryError()), "prefill failed: MemoryError"),
    "depth": (raising("complete", RecursionError("x\x1b[2J")), r"RecursionError: x\\x1b\[2J"),
    "reset": (raising("reset", ValueError("no")), "reset failed: ValueError: no"),
    "versions": (raising("versions", ValueError("no")), "versions failed"),
    "its name": ({"name": property(lambda self: 1 / 0)}, "reading its name failed: ZeroDivisionError"),
    "a method": ({"step": property(lambda self: 1 / 0)}, "reading its step failed: ZeroDivisionError"),
}


@pytest.mark.parametrize("case", RAISES)
def test_an_exception_cannot_be_judged(golden: GoldenRun, case: str) -> None:
    members, says = RAISES[case]
    with pytest.raises(EngineError, match=says) as refused:
        judged(golden, **members)
    assert refused.value.kind == "engine-failed"


NUMBERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "one NaN": (changed("prefill", lambda x: np.where(x == x.max(), np.nan, x)), "logits", "non-finite: 1 of"),
    "infinity": (changed("step", lambda x: x * np.inf), "steps", "non-finite"),
    "zeros": (changed("prefill", np.zeros_like), "logits", "degenerate"),
    "operation": (one_output(lambda x: x * np.nan, "out"), "operations", "layers.0.q.out: non-finite"),
    "an operation that raises": (raising("operation", KeyError("no kernel")), "operations", "KeyError: 'no kernel'"),
    "trace": (in_trace(lambda x: x * np.nan, "layers.0.attn_norm"), "trace", "layers.0.attn_norm: non-finite"),
    "codes beyond int8": (one_output(lambda x: x.astype(np.int64) << 40), "operations", "attn_in.codes"),
    "statistics": (returning("statistics", lambda: {"logits": {"rms": math.nan}}), "statistics", "non-finite: rms"),
    "wrong statistics": (returning("statistics", lambda: {"logits": {"rms": 1.0}}), "statistics", "logits: rms is 1,"),
    "a token beyond": (returning("complete", lambda: (VOCAB, {})), "next_tokens", "outside the vocabulary"),
    "bytes read wrongly": (changed("unpack", lambda x: -x), "packed_bytes", "hf [random trits]"),
    "damaged bytes read": (
        {"unpack": lambda self, name, data, shape: np.zeros(shape)},
        "packed_bytes",
        "hf [random trits]",
    ),
    "bytes refused": (raising("unpack", ValueError("no")), "packed_bytes", "unpack hf failed: ValueError: no"),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_wrong_numbers_in_the_right_form_do_not_conform(golden: GoldenRun, case: str) -> None:
    members, level, says = NUMBERS[case]
    report = judged(golden, **members)
    assert report.exit_code == 1
    assert report.levels[level].status == "failed"
    assert says in report.levels[level].note
    assert report.engine.speed is None


def test_each_damaged_matrix_that_is_read_is_told(golden: GoldenRun) -> None:
    def reads_anything(self: Right, name: str, data: bytes, shape: tuple[int, int]) -> Any:
        try:
            return FORMATS[name].unpack(data, shape, warn=False).dense()
        except Exception:
            return np.zeros(shape)

    level = judged(golden, unpack=reads_anything).levels["packed_bytes"]
    halves, code_3, scales = len(FORMATS), 1, 4
    assert (level.compared, level.failed) == (len(cases()), halves + code_3 + scales)
    assert "was read as if it were whole" in level.note


@pytest.mark.parametrize("method", ["unpack", "statistics"])
def test_an_engine_of_one_level_is_judged_by_it(golden: GoldenRun, method: str) -> None:
    """Packed bytes, or statistics alone: passed there, not assessed elsewhere."""
    right = Right(golden.checkpoint, COUNT)
    engine = type("One", (), {method: lambda self, *arguments: getattr(right, method)(*arguments)})()
    report = judge(golden, EngineUnderTest(engine), "small")
    level = {"unpack": "packed_bytes"}.get(method, method)
    assert {name for name, of in report.levels.items() if of.status == "passed"} == {level}
    assert (report.exit_code, report.engine.speed) == (0, None)


def test_a_format_that_is_not_read_is_not_assessed(golden: GoldenRun) -> None:
    right = Right(golden.checkpoint, COUNT)
    only = {"unpack": lambda self, name, *given: right.unpack(name, *given) if name == "i2_s" else None}
    level = judged(golden, **only).levels["packed_bytes"]
    assert (level.status, level.compared, level.not_assessed) == ("passed", 4, len(cases()) - 4)


def test_statistics_that_are_not_given_are_not_assessed(golden: GoldenRun) -> None:
    level = judged(golden).levels["statistics"]
    assert (level.status, level.compared, level.not_assessed) == ("passed", 1, len(golden.trace.arrays) - 1)
    assert "logits" in level.absent


@pytest.mark.parametrize("seed", range(1))  # test_statistics_level.py: many
def test_statistics_of_an_engine_with_float_noise_are_not_accused(golden: GoldenRun, seed: int) -> None:
    from tritgold_conformance.comparing.activation_statistics import statistics
    from tritgold_conformance.faults.fault import Mutant
    from tritgold_conformance.faults.faulty_engine import FaultyEngine
    from tritgold_conformance.faults.noise import noisy

    def of(self: Any, tokens: list[int]) -> Any:
        arrays = FaultyEngine(noisy(Mutant(golden.checkpoint), seed), COUNT).trace(tokens).arrays
        return {n: {m: getattr(statistics(a), m) for m in ("mean", "rms", "max", "zeros")} for n, a in arrays.items()}

    level = judged(golden, statistics=of).levels["statistics"]
    assert (level.status, level.compared) == ("passed", len(golden.trace.arrays))


class Declines:
    """Says by None that it has no prefill, no step, or neither."""

    def __init__(self, *given: str) -> None:
        self.given = given

    def reset(self) -> None:
        pass

    def prefill(self, tokens: list[int]) -> np.ndarray | None:
        return np.zeros((len(tokens), 8), np.float32) if "prefill" in self.given else None

    def step(self, token: int) -> np.ndarray | None:
        return np.zeros(8, np.float32) if "step" in self.given else None


def test_what_is_declined_has_no_speed() -> None:
    assert measure_speed(EngineUnderTest(Declines()), [1, 2, 3]) is None
    for given in ("prefill", "step"):
        speed = measure_speed(EngineUnderTest(Declines(given)), [1, 2, 3])
        assert speed is not None
        assert (speed.prefill is not None, speed.decode is not None) == (given == "prefill", given == "step")
