"""The trace file: whole or not at all, and refused when it is not what it says."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tritgold.errors import TraceError
from tritgold.trace import Trace
from tritgold.trace_names import TRACE_NAMES, counterpart


def example() -> Trace:
    trace = Trace(tokens=[1, 2], mode="golden/1", engine="test", model_hash="abc")
    trace.record("zebra", np.arange(4, dtype=np.int8).reshape(2, 2))
    trace.record("apple", np.ones((2, 3), np.float32))
    return trace


def test_a_saved_trace_comes_back_with_its_order_and_provenance(tmp_path: Path) -> None:
    trace = example()
    trace.save(tmp_path / "t")
    again = Trace.load(tmp_path / "t")
    assert list(again.arrays) == ["zebra", "apple"]  # safetensors sorts; execution order is ours to keep
    assert (again.tokens, again.mode, again.engine, again.model_hash) == ([1, 2], "golden/1", "test", "abc")
    assert again.digest() == trace.digest()
    assert "numpy" in again.versions
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    example().save(tmp_path / "t")
    assert load_file(tmp_path / "t")["apple"].shape == (2, 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.update(apple=a["apple"] + np.float32(1e-7)),
        lambda a: a.update(apple=a["apple"].astype(np.float64)),
        lambda a: a.update(apple=a["apple"].reshape(3, 2)),
        lambda a: a.pop("apple"),
    ],
)
def test_the_digest_sees_values_dtypes_shapes_and_absence(change: object) -> None:
    trace = example()
    before = trace.digest()
    change(trace.arrays)  # type: ignore[operator]
    assert trace.digest() != before


def test_the_digest_sees_the_order_but_not_the_provenance() -> None:
    trace = example()
    before = trace.digest()
    trace.engine = "another"
    assert trace.digest() == before
    trace.arrays = dict(reversed(trace.arrays.items()))
    assert trace.digest() != before


def test_every_prefix_of_a_trace_is_refused(tmp_path: Path) -> None:
    example().save(tmp_path / "t")
    whole = (tmp_path / "t").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "p").write_bytes(whole[:length])
        with pytest.raises(TraceError):
            Trace.load(tmp_path / "p")


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    for write, kind in [
        (lambda p: save_file({"a": np.ones(1)}, p), "not-a-trace"),
        (lambda p: save_file({"a": np.ones(1)}, p, {"tritgold.trace": "{"}), "not-a-trace"),
        (lambda p: save_file({"a": np.ones(1)}, p, {"tritgold.trace": json.dumps({"schema": "x"})}), "trace-schema"),
        (lambda p: p.write_text("text"), "trace-unreadable"),
        (lambda p: None, "trace-unreadable"),
    ]:
        path = tmp_path / f"file-{kind}"
        path.unlink(missing_ok=True)
        write(path)
        with pytest.raises(TraceError) as caught:
            Trace.load(path)
        assert caught.value.kind == kind


def foreign(path: Path, **changes: object) -> Path:
    """A trace as somebody else's program writes it: the required keys and no more."""
    header = {"schema": "tritgold.trace/1", "order": ["x"], "tokens": [1], "mode": "golden/1", "model_hash": "a"}
    save_file({"x": np.ones((1, 2), np.float32)}, path, {"tritgold.trace": json.dumps({**header, **changes})})
    return path


def test_a_foreign_trace_needs_no_digest_and_no_versions(tmp_path: Path) -> None:
    trace = Trace.load(foreign(tmp_path / "t"))
    assert (trace.engine, trace.versions, list(trace.arrays)) == ("", {}, ["x"])


@pytest.mark.parametrize(
    "changes",
    [{"mode": None}, {"order": "x"}, {"tokens": 1}, {"model_hash": 3}, {"versions": []}, {"digest": 1}, {"engine": 2}],
)
def test_a_wrong_header_is_refused_by_key(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(TraceError) as caught:
        Trace.load(foreign(tmp_path / "t", **changes))
    assert caught.value.kind == "trace-header"
    assert next(iter(changes)) in str(caught.value)


@pytest.mark.parametrize("order", [["y"], [["x"]], [None]])
def test_an_order_that_is_not_the_arrays_is_refused(tmp_path: Path, order: list[object]) -> None:
    with pytest.raises(TraceError):
        Trace.load(foreign(tmp_path / "t", order=order))


def test_the_digest_is_the_one_described() -> None:
    trace = Trace(arrays={"a": np.array([[1, 2]], np.int8), "b": np.array([0.5], np.float32)})
    text = b"a |i1 [1, 2]\n\x01\x02" + b"b <f4 [1]\n\x00\x00\x00\x3f"
    assert trace.digest() == hashlib.sha256(text).hexdigest()


def test_changed_arrays_are_seen_on_loading(tmp_path: Path) -> None:
    example().save(tmp_path / "t")
    raw = bytearray((tmp_path / "t").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "t").write_bytes(raw)
    with pytest.raises(TraceError) as caught:
        Trace.load(tmp_path / "t")
    assert caught.value.kind == "trace-digest"


def test_a_failed_save_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be written"):
        example().save(tmp_path / "no" / "such" / "folder")
    trace = example()
    trace.arrays["bad"] = np.array(["text"])
    with pytest.raises(TraceError, match="cannot be written"):
        trace.save(tmp_path / "t")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_name_suggests_the_nearest() -> None:
    with pytest.raises(TraceError, match="nearest: apple"):
        example()["aple"]


def test_probs_of_chunks_are_widened_with_zeros() -> None:
    trace = Trace()
    trace.record("layers.0.probs", np.ones((1, 2, 2), np.float32))
    trace.record("layers.0.probs", np.full((1, 1, 3), 2, np.float32))
    assert trace["layers.0.probs"][0].tolist() == [[1, 1, 0], [1, 1, 0], [2, 2, 2]]


def test_counterparts_cover_every_trace_point_and_no_other() -> None:
    from tritgold.config import ModelConfig
    from tritgold.graph import trace_names

    config = ModelConfig(
        vocab=9, hidden=8, inter=12, layers=1, heads=2, kv_heads=1, head_dim=4, context=16, norm_eps=1e-5,
        rope_theta=1e4, activation="relu2", sub_norms=True, tied_head=True, scale_rule="multiply",
        qk_norms=True, post_norms=True,
    )  # fmt: skip
    assert [n.replace("{n}", "0") for n in TRACE_NAMES] == trace_names(config)
    with pytest.raises(TraceError):
        counterpart("layers.0.nonsense")
