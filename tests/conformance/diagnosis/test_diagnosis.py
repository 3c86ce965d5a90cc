"""Faults are named by what they do, alone and in pairs; noise is never accused; what is unknown is called unknown."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asked_once import diagnose
from diagnosed import TOKENS, asked, names
from library import Shown, engine, golden, model, mutant

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import EngineError
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.layers.arithmetic import Q8_K_ARITHMETIC
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.diagnosis.diagnose import diagnose_view
from tritgold_conformance.diagnosis.per_run import predicted_logits
from tritgold_conformance.diagnosis.view import View
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.noise import KINDS, noisy
from tritgold_conformance.faults.packing import refusing_code_3
from tritgold_conformance.golden.run import GoldenRun, judging_tokens
from tritgold_conformance.questions.text_and_bytes import Question, answer_of
from tritgold_conformance.rendering.wording import distances
from tritgold_conformance.results.diagnosis import to_json

# One of each way to be made: weights, configuration, a function, an output, the cache, a memory of what came before.
NAMED = (
    "i2s-128-as-64", "hf-rows-interleaved", "sign-flipped", "scale-divided", "scale-never-on-gate", "one-scale-for-qkv",
    "truncated", "half-away", "no-floor", "not-quantised", "offset-missing", "offset-from-float-sum",
    "every-8th-skipped", "silu", "gate-and-up-swapped", "attn-sub-norm-after-o", "norm-eps-1e-6", "head-ternarised",
    "ffn-residual-dropped", "residual-after-the-norm", "ffn-act-overflows-f16", "layers-reversed", "rope-interleaved",
    "rope-off-by-one", "mask-off-by-one", "softmax-without-max", "kv-heads-tiled", "kv-one-step-late", "rope-frozen",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_a_fault_is_named_although_the_engine_has_noise_of_its_own(name: str) -> None:
    found = asked(noisy(mutant(name), seed=5))
    assert names(found) == [name]
    assert found.verdict == "named"
    assert found.exit_code == 1
    assert found.faults[0].distance < 1e-3
    assert found.first_divergence is not None


@pytest.mark.parametrize("level", ["operations", "trace", "logits"])
def test_one_scale_for_the_batch_is_one_fault(level: str) -> None:
    """Single steps are right then, and no second fault is named for them."""
    found = asked(noisy(mutant("per-tensor"), seed=5), level=level)
    assert names(found) == ["per-tensor"]
    assert found.unexplained == []


@pytest.mark.parametrize(("name", "few"), [("half-away", 0.001), ("half-up", 0.001), ("truncated", 1.0)])
def test_a_fault_of_codes_says_how_many_of_the_text_it_touches(name: str, few: float) -> None:
    """Half away from zero shows on exact ties, which the edge cases have and a text hardly ever."""
    (named,) = asked(mutant(name)).faults
    assert named.codes is not None
    differing, of = named.codes
    width = 4 * model("seeded").config.hidden
    assert of >= TOKENS * width
    assert differing <= few * of
    assert (differing > 0.1 * of) == (few == 1.0)
    assert f"{differing:,} of the text's {of:,} codes differ" in distances(named)


@pytest.mark.parametrize("name", ["silu", "rope-missing", "scale-divided", "i2s-128-as-64", "truncated"])
@pytest.mark.parametrize("level", ["trace", "statistics", "logits"])
def test_less_is_enough_for_many(name: str, level: str) -> None:
    found = asked(noisy(mutant(name), seed=6), level=level)
    assert names(found) == [name]
    assert found.levels[0] == level


@pytest.mark.parametrize(
    "pair",
    [
        ("silu", "rope-missing"),
        ("scale-divided", "truncated"),
        ("sign-flipped", "every-8th-skipped"),  # both in one output: neither explains it alone
        ("norm-eps-1e-3", "kv-one-step-late"),  # one shows in operations, the other in steps alone
    ],
)
def test_two_faults_are_found_by_repairing_the_first(pair: tuple[str, str]) -> None:
    found = asked(noisy(mutant(*pair), seed=7))
    assert sorted(names(found)) == sorted(pair)


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("kind", KINDS)
def test_noise_alone_is_never_accused(kind: str, seed: int) -> None:
    made = KINDS[kind](Mutant(model("seeded")), seed)
    right, theirs = golden("seeded", TOKENS).logits, FaultyEngine(made, TOKENS).prefill(golden("seeded", TOKENS).tokens)
    assert not np.array_equal(right, theirs), "it is noise, and not nothing"
    for level in (None, "trace", "statistics", "logits"):
        found = asked(made, level=level)
        assert found.clean, (level, found)
        assert found.exit_code == 0


class WithoutCodes(Shown):
    """Shows floats alone, as most engines' hooks do."""

    operation = step = None  # type: ignore[assignment]

    def trace(self, tokens: list[int]) -> Any:
        arrays = super().trace(tokens).arrays
        return {n: a for n, a in arrays.items() if not n.endswith((".codes", ".scale", ".acc"))}


@pytest.mark.parametrize("name", ["silu", "rope-missing", "scale-never", "truncated", "gate-and-up-swapped"])
def test_a_trace_without_integers_is_enough(name: str) -> None:
    run = golden("seeded", TOKENS)
    found = diagnose(run, EngineUnderTest(WithoutCodes(noisy(mutant(name), 3), TOKENS)), "seeded", unseen=False)
    assert names(found) == [name]
    right = diagnose(
        run, EngineUnderTest(WithoutCodes(noisy(Mutant(run.checkpoint), 3), TOKENS)), "seeded", unseen=False
    )
    assert right.clean


class StatisticsOnly:
    name = "statistics only"

    def __init__(self, made: Mutant) -> None:
        self._inner = FaultyEngine(made, TOKENS)

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        arrays = self._inner.trace(tokens).arrays
        return {
            n: {"mean": float(a.mean()), "rms": float(np.sqrt((a.astype(np.float64) ** 2).mean()))}
            for n, a in arrays.items()
        }


def test_an_engine_may_give_some_statistics_and_nothing_else() -> None:
    found = diagnose(golden("seeded", TOKENS), EngineUnderTest(StatisticsOnly(mutant("silu"))), "seeded", unseen=False)
    assert (found.levels, names(found)) == (["statistics"], ["silu"])


@pytest.mark.parametrize("moments", [{}, {"absolute mean": 0.5}])
def test_statistics_without_a_moment_that_is_known_accuse_nobody(moments: dict[str, float]) -> None:
    class OtherMoments:
        def statistics(self, tokens: list[int]) -> Any:
            return dict.fromkeys(golden("seeded", TOKENS).trace.arrays, moments)

    found = diagnose(golden("seeded", TOKENS), EngineUnderTest(OtherMoments()), "seeded", unseen=False)
    assert found.verdict == "nothing was checked"


def test_statistics_alone_show_what_they_show() -> None:
    """What could not have been seen is not everything, only because there is no trace."""
    run = golden("seeded", TOKENS)
    some = [FAULTS[name] for name in ("silu", "rope-missing", "softmax-without-max", "kv-one-step-late")]
    found = diagnose(run, EngineUnderTest(StatisticsOnly(Mutant(run.checkpoint))), "seeded", faults=some)
    assert found.verdict == "nothing to explain"
    assert found.could_not_see == ["softmax-without-max", "kv-one-step-late"]


@pytest.mark.parametrize(
    ("name", "position", "says"),
    [
        ("rope-missing", 1, "only positions > 0"),
        ("rows-from-32-on-zero", 32, "only positions from 32 on, in a pass of 40"),
        ("offset-missing", 0, "integers, with zero tolerance"),
        ("hf-rows-interleaved", 0, "channels permuted"),
        ("scale-twice", 0, "a constant ratio"),
        ("ffn-act-overflows-f16", 0, "non-finite"),
    ],
)
def test_the_first_divergence_says_where_and_of_what_class(name: str, position: int, says: str) -> None:
    found = asked(mutant(name), tokens=40)
    assert found.first_divergence is not None
    assert found.first_divergence.position == position
    assert says in found.first_divergence.what


def test_a_run_says_which_faults_it_could_not_have_shown() -> None:
    run = golden("seeded", 1)
    found = diagnose(run, engine(Mutant(run.checkpoint), 1), "seeded", "logits")
    assert found.could_not_see is not None
    assert {"rope-missing", "mask-missing", "softmax-scale-missing", "rope-interleaved", "kv-one-step-late"} <= set(
        found.could_not_see
    )
    assert "silu" not in found.could_not_see
    assert found.no_place is not None
    assert "relu2" in found.no_place


def test_decode_and_text_faults_are_named_by_answers() -> None:
    run = golden("diffusing", 12)
    for name in ("eos-ignored", "bos-doubled", "tokens-decoded-alone", "code-3-is-0", "mask-in-the-output"):
        found = diagnose(
            run, EngineUnderTest(FaultyEngine(mutant(name, on="diffusing"), 12)), "diffusing", unseen=False
        )
        assert names(found) == [name]
    right = diagnose(
        run, EngineUnderTest(FaultyEngine(noisy(Mutant(run.checkpoint), 1), 12)), "diffusing", unseen=False
    )
    assert right.clean


class ReadsBytes:
    """Reads the bytes of one format as a fault does; refuses code 3 as it should, or takes it for a weight."""

    name = "reads bytes"

    def __init__(self, fault: str, refuses: bool) -> None:
        made = mutant(fault)
        self._engine = FaultyEngine(refusing_code_3(made) if refuses else made)

    def unpack(self, name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray:
        return self._engine.unpack(name, data, shape)


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize("name", ["i2s-128-as-64", "i2s-64-as-128", "i2s-in-order-lsb", "i2s-in-order-msb"])
def test_a_layout_misread_is_named_whatever_is_done_with_code_3(name: str, refuses: bool) -> None:
    engine = EngineUnderTest(ReadsBytes(name, refuses))
    found = diagnose(golden("seeded", TOKENS), engine, "seeded", unseen=False)
    assert (names(found), found.unexplained) == ([name], [])


def test_a_right_reader_refuses_code_3_and_is_not_accused() -> None:
    engine = EngineUnderTest(ReadsBytes("code-3-is-0", refuses=False))
    assert names(diagnose(golden("seeded", TOKENS), engine, "seeded", unseen=False)) == ["code-3-is-0"]
    some = [FAULTS[name] for name in ("code-3-is-0", "code-3-is-plus-2", "i2s-128-as-64")]
    right = EngineUnderTest(ReadsBytes("silu", refuses=False))
    found = diagnose(golden("seeded", TOKENS), right, "seeded", faults=some)
    assert (found.verdict, found.could_not_see) == ("nothing to explain", [])


def test_an_engine_of_another_mode_is_told_its_fault_and_not_its_mode(tmp_path: Path) -> None:
    """Blocks of 256 are what llama.cpp's mode is, and a fault in the golden one."""
    write_seeded_model(tmp_path, Shape(seed=7, hidden=512, inter=512, layers=1, heads=4, kv_heads=2, context=16))
    run = GoldenRun.of(open_checkpoint(tmp_path), judging_tokens(8, 259, seed=1), Q8_K_ARITHMETIC)
    for name in ("silu", "rope-missing"):
        made = FAULTS[name].apply(Mutant(run.checkpoint, Q8_K_ARITHMETIC))
        assert made is not None
        found = diagnose(run, EngineUnderTest(Shown(made, 8)), "q8_k", unseen=False)
        assert found.levels == ["logits", "continued", "steps"]
        assert names(found) == [name]
    # Blocks have sums of another shape than those of other faults: two that do not fit together are not a candidate.
    both = FAULTS["per-256-block"].apply(Mutant(run.checkpoint))
    both = both and FAULTS["int16-wraps"].apply(both)
    assert both is not None
    assert predicted_logits(both, run.tokens, "logits") is None


def test_a_wrong_answer_is_named_in_a_mode_in_which_some_faults_cannot_run(tmp_path: Path) -> None:
    write_seeded_model(tmp_path, Shape(seed=7, hidden=256, inter=256, layers=1, heads=4, kv_heads=2, context=64))
    run = GoldenRun.of(open_checkpoint(tmp_path), judging_tokens(8, 259, seed=1), Q8_K_ARITHMETIC)
    question = Question("generate", "generated", "generate", (run.tokens, 4, {}))
    made = FAULTS["one-token-too-many"].apply(Mutant(run.checkpoint, Q8_K_ARITHMETIC))
    assert made is not None
    view = View(run, answers=[(question, answer_of(made, question))])
    library = [FAULTS[name] for name in ("per-tensor", "one-token-too-many")]  # the first has one scale a token
    assert names(diagnose_view(view, "it", "q8_k", library)) == ["one-token-too-many"]


def test_an_engine_that_gives_nothing_was_not_checked() -> None:
    class Nothing:
        name = "nothing"

    found = diagnose(golden("seeded", TOKENS), EngineUnderTest(Nothing()), "seeded", unseen=False)
    assert (found.verdict, found.exit_code) == ("nothing was checked", 5)


class Raises(Shown):
    """Has every operation, and some of them raise."""

    trace = step = prefill = None  # type: ignore[assignment]

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> Any:
        if self.mutant.names or name.endswith("layers.1.down"):
            raise ValueError("no kernel for it")
        return super().operation(name, inputs)


@pytest.mark.parametrize(("fault", "where"), [((), "layers.1.down.acc"), (("silu",), "embedding")])
def test_an_operation_that_raises_is_no_right_one(fault: tuple[str, ...], where: str) -> None:
    found = diagnose(golden("seeded", TOKENS), EngineUnderTest(Raises(mutant(*fault), TOKENS)), "seeded", unseen=False)
    assert (found.verdict, found.exit_code) == ("none of the known faults", 1)
    assert found.first_divergence is not None
    assert found.first_divergence.name == where
    assert "no kernel for it" in found.first_divergence.what


def test_an_operation_of_another_form_cannot_be_diagnosed() -> None:
    class OtherRoles(Shown):
        def operation(self, name: str, inputs: dict[str, np.ndarray]) -> Any:
            return {"y": np.zeros(1)}

    run = golden("seeded", TOKENS)
    with pytest.raises(EngineError, match="returns other roles") as refused:
        diagnose(
            run, EngineUnderTest(OtherRoles(Mutant(run.checkpoint), TOKENS), config=run.checkpoint.config), "seeded"
        )
    assert refused.value.kind == "engine-output"


def test_names_say_nothing_to_the_search() -> None:
    """The same engine, called after another fault and with the library's names exchanged: what it does decides."""
    renamed = [replace(f, name=f"x{n}", summary="", looks_like="") for n, f in enumerate(FAULTS.values())]
    at = list(FAULTS).index("silu")
    named_wrongly = EngineUnderTest(Shown(mutant("silu"), TOKENS, name="rope-missing"))
    found = diagnose(golden("seeded", TOKENS), named_wrongly, "seeded", faults=renamed, unseen=False)
    assert names(found) == [f"x{at}"]


def test_the_answer_is_json() -> None:
    data = json.loads(to_json(asked(mutant("silu"))))
    assert data["schema"] == "tritgold.diagnosis/1"
    assert data["faults"][0]["fault"] == "silu"
