"""What the registry makes of a function, and what it refuses; what the makers given to it make of one."""

from types import ModuleType

import numpy as np
import pytest
from library import model

from tritgold.errors import EngineError
from tritgold.kv_cache.float32 import Float32Cache
from tritgold_conformance.faults import FAULTS, rules
from tritgold_conformance.faults.fault import AREAS, OPERATIONS, TEXT, Fault, Mutant, Mutation
from tritgold_conformance.faults.library import collect, known_fault, named
from tritgold_conformance.faults.mutate import (
    Function,
    altered,
    appends,
    decoding,
    gate,
    replaces,
    with_config,
    with_scales_of,
    wraps,
)
from tritgold_conformance.faults.packing import FORMATS, reads
from tritgold_conformance.faults.rules import decode

AREA = "graph"


def silu_thrice(s: Mutant) -> Mutant:
    """SiLU is applied three times.

    Looks like: fluent at first,
        and wrong
    Seen in: a/b #1, #2; c/d

    Notes may follow. Seen in: notes, which is not a section"""
    return s


def test_a_function_and_its_docstring_are_a_fault() -> None:
    made = known_fault(OPERATIONS, invisible_on=("logits",))(silu_thrice)
    assert (made.name, made.area, made.summary) == ("silu-thrice", "graph", "SiLU is applied three times.")
    assert (made.looks_like, made.seen_in) == ("fluent at first, and wrong", ("a/b #1, #2", "c/d"))
    assert (made.shown_by, made.invisible_on, made.harmless) == (OPERATIONS, ("logits",), False)
    assert made.function is made.change is silu_thrice
    applied = made.apply(Mutant(model("seeded")))
    assert applied is not None
    assert applied.names == ("silu-thrice",)


def test_what_is_made_with_a_function_has_its_name_docstring_and_source() -> None:
    made = known_fault(TEXT, replaces("quantize"))(silu_thrice)
    assert (made.name, made.function) == ("silu-thrice", silu_thrice)
    applied = made.apply(Mutant(model("seeded")))
    assert applied is not None
    assert applied.arithmetic.quantize is silu_thrice


def described(name: str, doc: str, area: str = "graph") -> Mutation:
    code: dict[str, object] = {"AREA": area, "__name__": "a.module"}
    exec(f"def {name}(s):\n    {doc!r}\n    return s", code)
    return code[name]  # type: ignore[return-value]


GOOD = "Wrong.\n\nLooks like: wrong"


@pytest.mark.parametrize(
    ("change", "invisible_on", "message"),
    [
        (
            described("x_y", GOOD, area="graphs"),
            (),
            r"fault 'x-y': no such area: found 'graphs', expected one of packing",
        ),
        (described("x_y", GOOD), ("nowhere",), r"INVISIBLE of faults/fault.py lacks a key: found \['nowhere'\]"),
        (described("x_y", "Wrong."), (), r"its docstring needs a summary and a line 'Looks like: ...'"),
        (described("x_y", ""), (), r"its docstring needs a summary"),
    ],
)
def test_a_fault_that_is_not_described_is_refused(
    change: Mutation, invisible_on: tuple[str, ...], message: str
) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        known_fault(OPERATIONS, invisible_on=invisible_on)(change)
    assert caught.value.kind == "bad-fault"


def test_a_name_is_given_once_in_a_module_and_once_in_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    change = described("x_y", GOOD)
    change.__globals__["x_y"] = known_fault(OPERATIONS)(change)  # as the first of two functions of one name leaves it
    with pytest.raises(EngineError, match=r"fault 'x-y': two faults have this name. rename one") as caught:
        known_fault(OPERATIONS)(change)
    assert caught.value.kind == "duplicate-fault"
    monkeypatch.setattr(decode, "another", FAULTS["silu"], raising=False)
    with pytest.raises(EngineError, match="fault 'silu': two faults have this name") as caught:
        collect(rules)
    assert caught.value.kind == "duplicate-fault"


def test_faults_are_listed_by_area_and_a_harmless_one_is_not() -> None:
    collected = collect(rules)
    assert list(collected) == list(FAULTS)
    areas = [AREAS.index(fault.area) for fault in collected.values()]
    assert areas == sorted(areas)
    assert next(iter(FAULTS)) == "i2s-128-as-64"
    assert list(FAULTS)[-1] == "local-theta-in-every-layer"
    assert "clamp-127" not in FAULTS


def test_a_package_without_faults_has_none() -> None:
    empty = ModuleType("empty")
    empty.__path__ = []
    assert collect(empty) == {}
    with pytest.raises(EngineError, match=r"no such fault: found 'silu'. tritgold faults lists them"):
        named({}, "silu")


def test_a_wrapped_function_is_given_what_it_takes_the_place_of() -> None:
    @wraps("rms_norm")
    def twice(right: Function, x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
        return right(x, 2 * gain, eps)

    s, x, gain = Mutant(model("seeded")), np.float32([[3, 4]]), np.float32([1, 2])
    both = twice(twice(s) or s)
    assert both is not None
    assert both.arithmetic.rms_norm(x, gain, 1e-5).tolist() == s.arithmetic.rms_norm(x, 4 * gain, 1e-5).tolist()


def test_an_output_is_altered_after_what_earlier_faults_alter() -> None:
    s = altered(Mutant(model("seeded")), lambda name, value, seen: value + 1 if name == "here" else None)
    s = altered(s, lambda name, value, seen: value * 2 if name == "here" else None)
    assert s.arithmetic.alter is not None
    assert s.arithmetic.alter("here", np.float32([1]), {}).tolist() == [4]
    assert s.arithmetic.alter("there", np.float32([1]), {}).tolist() == [1]


def test_there_is_no_place_for_what_is_so_already() -> None:
    s = Mutant(model("seeded"))
    assert with_config(s, norm_eps=s.config.norm_eps) is None
    assert gate(unless=s.config.activation)(np.square)(s) is None
    assert gate(unless="another")(np.square)(s) is not None


def test_scales_are_borrowed_within_a_layer_and_from_the_next_around_the_end() -> None:
    s = Mutant(model("seeded"))
    right, last = s.checkpoint.weights.layers, len(s.checkpoint.weights.layers) - 1
    within = with_scales_of(s, {"k": "q"}).checkpoint.weights.layers
    around = with_scales_of(s, {"k": "k"}, layers_on=1).checkpoint.weights.layers
    assert within[last].k.ternary().scale == right[last].q.ternary().scale
    assert around[last].k.ternary().scale == right[0].k.ternary().scale
    assert within[0].v is right[0].v


def test_sets_of_switches_are_joined_and_others_replaced() -> None:
    s = decoding(Mutant(model("seeded")), diffusion_defects=frozenset("a"), extra_tokens=1)
    s = decoding(s, diffusion_defects=frozenset("b"), extra_tokens=2)
    assert s.decoding == {"diffusion_defects": frozenset("ab"), "extra_tokens": 2}


def test_a_reading_changes_weights_that_fit_and_files_of_its_format_alone() -> None:
    @reads("hf")
    def zeros(data: bytes, shape: tuple[int, int]) -> np.ndarray:
        if shape[0] == shape[1]:
            raise ValueError("not these")
        return np.ones(shape, np.uint8)

    s = zeros(Mutant(model("seeded")))
    assert s is not None
    assert s.unpack is not None
    layer, right = s.checkpoint.weights.layers[0], model("seeded").weights.layers[0]
    assert not layer.up.ternary().trits.any()
    assert layer.up.ternary() is layer.up.ternary()
    assert layer.q is right.q, "a square matrix, which the reading refuses"
    data = FORMATS["hf"].pack(np.ones((8, 4), np.int8), 1.0)
    assert not s.unpack("hf", data, (8, 4)).any()  # type: ignore[union-attr]
    assert s.unpack("tq1_0", b"", (1, 256)) is None


def test_a_cache_gives_a_pass_what_the_function_makes_of_its_rows() -> None:
    @appends
    def negated(cache: Float32Cache, layer: int, keys: np.ndarray, values: np.ndarray, new: int) -> object:
        return -keys, values * new

    s = negated(Mutant(model("seeded")))
    assert s is not None
    cache, c = s.new_cache(s.config, 4), s.config
    rows = np.ones((2, c.kv_heads, c.head_dim), np.float32)
    keys, values = cache.append(0, rows, rows)
    assert (keys == -1).all()
    assert (values == 2).all()
    assert len(keys) == 2


def test_every_fault_is_of_the_library() -> None:
    assert all(isinstance(fault, Fault) and fault.function.__doc__ for fault in FAULTS.values())
