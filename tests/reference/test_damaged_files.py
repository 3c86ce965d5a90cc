"""Files cut short anywhere, and every value of another kind: a typed error or a whole model, never anything else.

Damage at random is in tests/fuzz.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from refusals import SECONDS, assert_printable, frugal
from safetensors.numpy import save
from small_models import Entries, Entry, as_gguf, planned, seeded

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import TritgoldError
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.safetensors_file import INDEX, SafetensorsFile
from tritgold.formats.safetensors_writer import write_safetensors
from tritgold.tokenizer import Tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::tritgold.errors.TritgoldWarning")  # damage may leave odd values


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny seeded model as a folder of single files."""
    folder = tmp_path_factory.mktemp("hf")
    return seeded(folder).write(folder / "hf")


@pytest.fixture(scope="module")
def gguf_file(hf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a GGUF: string arrays ahead, a wide alignment, an I2_S tensor last, its trailer at the very end."""
    model = as_gguf(hf, "bitnet-b1.58")
    tokens = g.array(g.STRING, [f"token {i}" for i in range(20)])
    model.pairs = {"tokenizer.ggml.tokens": g.pair("tokenizer.ggml.tokens", g.ARRAY, tokens), **model.pairs}
    model.set("tokenizer.ggml.scores", g.ARRAY, g.array(g.F32, [0.5] * 20))
    model.set("general.alignment", g.U32, 64)
    upper = np.frombuffer(model.tensors["token_embd.weight"].data, "<u2")[1::2]  # the seeded embedding is bf16
    model.alter("token_embd.weight", type_id=g.TYPE_BF16, data=upper.tobytes())
    model.tensors["blk.0.ffn_down.weight"] = model.tensors.pop("blk.0.ffn_down.weight")
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    path.write_bytes(g.gguf(model.pairs.values(), model.tensors.values(), alignment=64))
    return path


def outcome(act: Callable[[], object], number: int) -> TritgoldError | None:
    """The typed error that the act ends with, None where it succeeds. Anything else is raised.

    Every act is timed; every eighth has its memory measured too, which makes it three times as slow.
    """
    if number % 8 == 0:
        with frugal():
            return outcome(act, 1)
    begin = time.process_time()
    try:
        act()
    except TritgoldError as error:
        assert_printable(error)
        return error
    finally:
        took = time.process_time() - begin
        assert took < SECONDS, f"{took:.2f} s"
    return None


# ---- every prefix, bug case B52 ----------------------------------------------------------------------------------


def refuse_every_prefix(path: Path, act: Callable[[], object], size: int | None = None, step: int = 1) -> set[str]:
    """Shorten the file byte by byte, expecting a typed error each time; returns the kinds seen."""
    kinds = set()
    for length in range((path.stat().st_size if size is None else size) - 1, -1, -step):
        os.truncate(path, length)
        error = outcome(act, length)
        assert error is not None, f"the first {length} bytes load"
        kinds.add(error.kind)
    return kinds


@pytest.mark.parametrize("last", ["I2_S", "TQ2_0", "F32"])
def test_no_prefix_of_a_gguf_loads(tmp_path: Path, last: str) -> None:
    """About 10 KB: string arrays, numbers, four tensors. Whichever is last, its end is the end of the file."""
    pairs = [
        g.pair("general.architecture", g.STRING, "bitnet-b1.58"),
        g.pair("tokens", g.ARRAY, g.array(g.STRING, [f"token {i}" for i in range(20)])),
        g.pair("scores", g.ARRAY, g.array(g.F32, [0.5] * 20)),
        g.pair("flag", g.BOOL, 1),
    ]
    tensors = {
        "F32": g.Tensor("a", (20, 16), g.TYPE_F32, bytes(1280)),
        "I2_S": g.Tensor("b", (64, 64), g.TYPE_I2_S, g.i2_s([1] * 4096, 0.5)),
        "TQ2_0": g.Tensor("c", (8, 512), g.TYPE_TQ2_0, bytes(66 * 16)),
        "F16": g.Tensor("d", (40, 64), g.TYPE_F16, bytes(5120)),
    }
    order = [*(t for name, t in tensors.items() if name != last), tensors[last]]
    path = tmp_path / "m.gguf"
    path.write_bytes(g.gguf(pairs, order))
    assert 9_000 < path.stat().st_size < 12_000
    assert len(GgufFile(path).tensors) == 4
    step = 1 if last == "I2_S" else 13
    assert refuse_every_prefix(path, lambda: GgufFile(path), step=step) == {"truncated", "count"}


def test_no_prefix_of_a_gguf_model_loads(gguf_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_file.read_bytes())
    assert open_checkpoint(path).config.layers == 1
    assert refuse_every_prefix(path, lambda: open_checkpoint(path), step=17) == {"truncated", "count"}


def test_no_prefix_of_a_safetensors_file_loads(hf: Path, tmp_path: Path) -> None:
    small, whole = tmp_path / "small.safetensors", tmp_path / "m.safetensors"
    small.write_bytes(save({"a": np.ones((9, 9), np.float32), "b": np.zeros(7, np.uint8)}, {"format": "pt"}))
    whole.write_bytes((hf / "model.safetensors").read_bytes())
    for path, step in ((small, 1), (whole, 17)):
        SafetensorsFile(path)
        assert refuse_every_prefix(path, lambda path=path: SafetensorsFile(path), step=step) == {"truncated"}


@pytest.mark.parametrize("name", ["config.json", INDEX, "2.safetensors"])
def test_no_prefix_of_another_file_of_the_folder_loads(hf: Path, tmp_path: Path, name: str) -> None:
    for file in hf.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    split(tmp_path)
    open_checkpoint(tmp_path)
    text = (tmp_path / name).read_bytes()
    # The final newline of a text file may go.
    size = len(text.rstrip()) if name.endswith(".json") else len(text)
    refuse_every_prefix(tmp_path / name, lambda: open_checkpoint(tmp_path), size)


def split(folder: Path) -> None:
    """The model in two shards with an index; the second holds one small tensor."""
    whole = SafetensorsFile(folder / "model.safetensors")
    parts: dict[str, Entries] = {"1.safetensors": {}, "2.safetensors": {}}
    for name, t in whole.tensors.items():
        shard = "2.safetensors" if name == "model.norm.weight" else "1.safetensors"
        parts[shard][name] = Entry(t.dtype, t.shape, t.data.tobytes())
    for shard, entries in parts.items():
        write_safetensors(folder / shard, planned(entries), {})
    where = {name: shard for shard, entries in parts.items() for name in entries}
    (folder / INDEX).write_text(json.dumps({"weight_map": where}) + "\n")
    (folder / "model.safetensors").unlink()


def test_no_prefix_of_a_tokenizer_loads(hf: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes((hf / "tokenizer.json").read_bytes())
    Tokenizer(path)
    assert refuse_every_prefix(path, lambda: Tokenizer(path), len(path.read_bytes().rstrip()), step=7) == {"tokenizer"}


# ---- every value of another kind --------------------------------------------------------------------------------

JSON_VALUES = [None, True, False, 0, -1, 1, 2**63, 10**400, 0.5, 1e999, float("nan"), "", "\ud800", [], {}, [[]], [{}]]


def test_a_configuration_with_values_swapped(hf: Path, tmp_path: Path) -> None:
    """Every key, the inner ones too, with every kind of JSON value."""
    for file in hf.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    good = json.loads((tmp_path / "config.json").read_text())
    refused = 0
    for section in (None, "quantization_config"):
        for key in good if section is None else good[section]:
            for number, value in enumerate(JSON_VALUES):
                changed = json.loads(json.dumps(good))
                (changed if section is None else changed[section])[key] = value
                (tmp_path / "config.json").write_text(json.dumps(changed))
                refused += outcome(lambda: open_checkpoint(tmp_path), number) is not None
    assert refused > 250


def test_metadata_with_values_swapped(hf: Path, tmp_path: Path) -> None:
    """Every key of a GGUF with every kind of value."""
    model = as_gguf(hf, "bitnet-b1.58")
    kinds = [(g.U8, 1), (g.I8, -1), (g.U32, 2**32 - 1), (g.I64, -(2**63)), (g.U64, 2**64 - 1), (g.F32, float("nan")),
             (g.F64, 1e300), (g.BOOL, 1), (g.STRING, ""), (g.STRING, "llama"), (g.ARRAY, g.array(g.STRING, [])),
             (g.ARRAY, g.array(g.STRING, ["a", "b"])), (g.ARRAY, g.array(g.U32, [])),
             (g.ARRAY, g.array(g.U32, [1, 2])), (g.ARRAY, g.array(g.F32, [1]))]  # fmt: skip
    extra = ["general.alignment", "bitnet-b1.58.rope.scaling.factor", "bitnet-b1.58.hidden_activation", "general.name"]
    good, path = dict(model.pairs), tmp_path / "m.gguf"
    refused = 0
    for key in [*good, *extra]:
        for number, (kind, value) in enumerate(kinds):
            model.pairs = dict(good)
            model.set(key, kind, value)
            model.write(path)
            refused += outcome(lambda: open_checkpoint(path), number) is not None
    assert refused > 150


# ---- the checks can fail -----------------------------------------------------------------------------------------


def test_a_bare_exception_is_not_taken_for_a_refusal(hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(save({"a": np.ones(4, np.float32)}))

    def careless(self: object) -> object:
        raise KeyError("dtype")

    monkeypatch.setattr(SafetensorsFile, "_header", careless)
    with pytest.raises(KeyError):
        refuse_every_prefix(path, lambda: SafetensorsFile(path))


def test_a_reader_that_accepts_a_prefix_is_caught(tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.write_bytes(b"1234")
    with pytest.raises(AssertionError, match="the first 3 bytes load"):
        refuse_every_prefix(path, path.read_bytes)


def test_a_greedy_reader_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="MB"):
        outcome(lambda: bytearray(60_000_000), 0)
