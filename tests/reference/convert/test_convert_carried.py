"""What goes along beside the weights, and what the proof compares of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conversions import bitnet, converted, llama, masters, metadata, options, rewritten
from refusals import refusal
from small_models import WIDE, bf16_entry, seeded

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import Options, convert, gguf, hf
from tritgold.errors import ConfigError, TritgoldWarning
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.layouts import Layouts
from tritgold.formats.sglbitnt_file import SglbitntFile

# ---- texts and tokens ----------------------------------------------------------------------------------------------


def test_what_a_gguf_file_says_of_itself_goes_along(tmp_path: Path) -> None:
    """Name, author, licence, special tokens and the tokenizer's own keys, unused tokens included."""
    converted(bitnet(tmp_path), tmp_path, "i2_s")

    def change(said: dict[str, Any]) -> None:
        said |= {"general.name": "A Name", "general.author": "somebody", "general.tags": ["a", "b"]}
        said |= {"tokenizer.ggml.unknown_token_id": 3, "tokenizer.ggml.padding_token_id": 4}
        said["tokenizer.ggml.tokens"][5] = "unused-5"
        del said["tokenizer.huggingface.json"]

    source = rewritten(tmp_path / "i2_s.gguf", change)
    converted(source, tmp_path, "tq2_0")
    before, after = metadata(source), metadata(tmp_path / "tq2_0.gguf")
    assert after["general.file_type"] == 37
    for key, value in before.items():
        if key not in ("general.file_type", "tritgold.i2_s"):
            assert np.array_equal(after[key], value), key


def test_a_pad_token_goes_everywhere(tmp_path: Path) -> None:
    source = bitnet(tmp_path)
    config = json.loads((source / "config.json").read_text()) | {"pad_token_id": 258}
    (source / "config.json").write_text(json.dumps(config))
    converted(source, tmp_path, "i2_s")
    assert metadata(tmp_path / "i2_s.gguf")["tokenizer.ggml.padding_token_id"] == 258
    converted(tmp_path / "i2_s.gguf", tmp_path, "sglbitnt")
    assert SglbitntFile(tmp_path / "sglbitnt.bin").config["pad_token_id"] == 258
    converted(tmp_path / "sglbitnt.bin", tmp_path, "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["pad_token_id"] == 258


def test_a_padding_token_of_a_foreign_gguf_file_reaches_config_json(tmp_path: Path) -> None:
    converted(bitnet(tmp_path), tmp_path, "i2_s")

    def change(said: dict[str, Any]) -> None:
        said["tokenizer.ggml.padding_token_id"] = 258
        del said["tritgold.text.config.json"]

    converted(rewritten(tmp_path / "i2_s.gguf", change), tmp_path, "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["pad_token_id"] == 258


def test_a_key_that_was_passed_over_stays_in_config_json(tmp_path: Path) -> None:
    source = bitnet(tmp_path)
    text = (source / "config.json").read_text().replace("{", '{"novel": 1, "pad_token_id": 9,', 1)
    (source / "config.json").write_text(text)
    opened = open_checkpoint(source, ignore_keys=("novel",))
    convert(opened, tmp_path / "out", "hf", options("hf", ignore_keys=("novel",)))
    assert (tmp_path / "out" / "config.json").read_text() == text
    assert refusal(lambda: open_checkpoint(tmp_path / "out")).kind == "config-unknown-key"


@pytest.mark.parametrize(("embedding", "dtype"), [("F16", "float16"), ("F32", "float32"), (None, "bfloat16")])
def test_config_json_names_the_dtype_of_the_floats(embedding: str | None, dtype: str, tmp_path: Path) -> None:
    """transformers with dtype="auto" rounds to what is written there."""
    converted(bitnet(tmp_path), tmp_path, "hf", embedding=embedding)
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["dtype"] == dtype


def test_other_tokenizers_go_along_or_are_said_to_stay(tmp_path: Path) -> None:
    source = bitnet(tmp_path)
    (source / "tokenizer.json").unlink()
    (source / "tokenizer.model").write_bytes(b"\x0a\x00 binary \xff")
    converted(source, tmp_path, "hf")
    assert (tmp_path / "hf" / "tokenizer.model").read_bytes() == b"\x0a\x00 binary \xff"
    for to in ("i2_s", "sglbitnt"):
        with pytest.warns(TritgoldWarning, match=r"no tokenizer.json: tokenizer.model cannot go along"):
            converted(source, tmp_path, to)


def test_the_texts_of_an_earlier_file_are_not_taken_for_this_one_s(tmp_path: Path) -> None:
    source = open_checkpoint(bitnet(tmp_path))
    converted(source, tmp_path, "sglbitnt")
    bare = tmp_path / "bare"
    converted(source, bare.parent, "hf")
    (tmp_path / "hf").rename(bare)
    (bare / "tokenizer.json").unlink()
    (bare / "tokenizer_config.json").unlink()
    error = refusal(lambda: converted(bare, tmp_path, "sglbitnt"))
    assert (error.kind, error.file) == ("exists", str(tmp_path / "sglbitnt.bin.tokenizer.json"))
    assert open_checkpoint(tmp_path / "sglbitnt.bin").tokenizer_json() == source.tokenizer_json()


# ---- weights -------------------------------------------------------------------------------------------------------


def test_masters_in_gguf_are_no_code_3(tmp_path: Path) -> None:
    """--code3 zero is about two-bit codes; it must not turn float masters into zeros."""
    source = open_checkpoint(bitnet(tmp_path))
    folder = masters(source, tmp_path / "m", np.random.default_rng(0).normal(0, 0.02, (256, 256)).astype(np.float32))
    opened = open_checkpoint(folder, quantize=True)
    path = tmp_path / "masters.gguf"
    convert(opened, path, "gguf-f32", options("gguf-f32", quantize=True))
    raw, place = bytearray(path.read_bytes()), GgufFile(path).tensors["blk.0.attn_q.weight"].offset
    raw[place : place + 1024] = np.random.default_rng(1).normal(size=256).astype("<f4").tobytes()
    path.write_bytes(raw)
    for lenient in (False, True):
        error = refusal(lambda lenient=lenient: open_checkpoint(path, layouts=Layouts(code3_as_zero=lenient)))
        assert error.kind == "not-ternary"


def test_what_is_ternary_already_is_not_quantised_again(tmp_path: Path) -> None:
    """absmean would keep the trits and give them the mean magnitude, zeros included, for a scale."""
    source = open_checkpoint(bitnet(tmp_path))
    converted(source, tmp_path, "gguf-f32")
    opened = open_checkpoint(tmp_path / "gguf-f32.gguf", quantize=True)
    assert opened.model_hash() == source.model_hash()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, -1])
def test_an_embedding_that_is_not_finite_is_no_model(value: float, row: int, tmp_path: Path) -> None:
    model = seeded(tmp_path, WIDE)
    values = model.floats("model.embed_tokens.weight")
    values[row, 7] = value
    model.entries["model.embed_tokens.weight"] = bf16_entry(values)
    error = refusal(lambda: open_checkpoint(model.write(tmp_path / "m")))
    assert error.kind == "weight-non-finite"
    assert "embed_tokens" in str(error)


def test_rows_that_transformers_refuses_are_said(tmp_path: Path) -> None:
    """out = 258 is packed into 65 rows of bytes; transformers compares 4 x 65 with 258."""
    model = seeded(tmp_path, replace(WIDE, inter=258))
    with pytest.warns(TritgoldWarning, match="multiple of 4"):
        converted(model.write(tmp_path / "m"), tmp_path, "hf")


def test_squared_relu_as_bitnet_is_said(tmp_path: Path) -> None:
    with pytest.warns(TritgoldWarning, match="llama.cpp runs SiLU"):
        converted(bitnet(tmp_path), tmp_path, "tq2_0", architecture="bitnet")


@pytest.mark.parametrize(
    ("to", "fields"),
    [
        ("i2_s", {"scale_rule": "divide"}),
        ("sglbitnt", {"shard_bytes": 7}),
        ("hf", {"architecture": "llama"}),
        ("hf", {"layouts": Layouts(tile={"BM": 32, "BK": 96})}),
        ("hf", {"round_scales": True}),
        ("sglbitnt", {"embedding": "F16"}),
        ("sglbitnt", {"fallback": "F16"}),
    ],
)
def test_an_option_that_says_nothing_is_refused(to: str, fields: dict[str, Any], tmp_path: Path) -> None:
    source = open_checkpoint(bitnet(tmp_path))
    error = refusal(lambda: convert(source, tmp_path / "out", to, Options(**fields)))
    assert error.kind == "option-unused"
    assert next(iter(fields)) in str(error)


# ---- the proof -----------------------------------------------------------------------------------------------------


def test_tiles_are_written_in_their_order_whatever_the_dict_s(tmp_path: Path) -> None:
    source = open_checkpoint(bitnet(tmp_path))
    layouts = Layouts(tiles={(rows, 256): {"bm": 32, "BK": 128, "BM": 64} for rows in (128, 256)})
    path = tmp_path / "m.gguf"
    convert(source, path, "tl1", options("tl1", layouts=layouts))
    assert metadata(path)["tritgold.tile.256x256"].tolist() == [64, 128, 32]
    assert open_checkpoint(path).model_hash() == source.model_hash()


def proof_error(source: Checkpoint, to: str, folder: Path, damage: Callable[[Any], None], plans: type) -> str:
    """The proof's message where the plan is changed just before it is written."""
    written = plans.write

    def damaged(plan: Any, path: Path) -> None:
        kept = replace(plan)
        damage(kept)
        written(kept, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "write", damaged)
        error = refusal(lambda: converted(source, folder, to))
    assert error.kind == "not-equal"
    return str(error)


def set_key(key: str, value: Any) -> Callable[[Any], None]:
    return lambda plan: setattr(plan, "metadata", plan.metadata | {key: value})


def drop_key(key: str) -> Callable[[Any], None]:
    return lambda plan: setattr(plan, "metadata", {k: v for k, v in plan.metadata.items() if k != key})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bitnet-b1.58.context_length", 17),
        ("bitnet-b1.58.hidden_activation", "silu"),
        ("tokenizer.ggml.eos_token_id", 255),
        ("tokenizer.ggml.tokens", [f"t{i}" for i in range(259)]),
        ("tokenizer.ggml.add_bos_token", False),
        ("tokenizer.chat_template", "another"),
        ("general.name", "another"),
    ],
)
def test_every_key_is_proved(key: str, value: Any, tmp_path: Path) -> None:
    source = open_checkpoint(bitnet(tmp_path))
    assert f"key '{key}'" in proof_error(source, "i2_s", tmp_path, set_key(key, value), gguf.GgufPlan)
    if not key.endswith("context_length"):  # without which it is not a model
        assert f"key '{key}'" in proof_error(source, "i2_s", tmp_path, drop_key(key), gguf.GgufPlan)


def test_the_type_asked_for_is_proved(tmp_path: Path) -> None:
    """B65: a full-size file that claims I2_S."""
    source = open_checkpoint(bitnet(tmp_path))
    other: list[Any] = []
    convert_as = gguf.GgufPlan.write

    def keep(plan: Any, path: Path) -> None:
        other.append(plan)
        convert_as(plan, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf.GgufPlan, "write", keep)
        converted(source, tmp_path, "gguf-f32")

    def damage(plan: Any) -> None:
        plan.tensors = other[0].tensors

    assert "tensor 'blk.0.attn_q.weight'" in proof_error(source, "i2_s", tmp_path, damage, gguf.GgufPlan)


@pytest.mark.parametrize(
    ("name", "thing"),
    [("tokenizer.json", "the tokenizer"), ("tokenizer_config.json", "the chat template"), ("config.json", "context")],
)
def test_the_texts_of_a_folder_are_proved(name: str, thing: str, tmp_path: Path) -> None:
    source = open_checkpoint(bitnet(tmp_path))

    def damage(plan: Any) -> None:
        text = plan.texts[name]
        changed = text.replace('"max_position_embeddings": 16', '"max_position_embeddings": 15')
        plan.texts = plan.texts | {name: changed if changed != text else "{}" if "config" in name else text[:-1]}

    assert thing in proof_error(source, "hf", tmp_path, damage, hf.HfPlan)


def test_a_head_that_is_another_is_found(tmp_path: Path) -> None:
    source = open_checkpoint(llama(tmp_path))

    def damage(plan: Any) -> None:
        by_name = {t.name: t for t in plan.tensors}
        swapped = {"lm_head.weight": "model.embed_tokens.weight", "model.embed_tokens.weight": "lm_head.weight"}
        plan.tensors = [replace(t, chunks=by_name[swapped.get(t.name, t.name)].chunks) for t in plan.tensors]

    assert "embedding" in proof_error(source, "hf", tmp_path, damage, hf.HfPlan)


def test_an_error_of_the_proof_names_the_destination(tmp_path: Path) -> None:
    source = open_checkpoint(bitnet(tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tritgold.convert.open_checkpoint", _refusing)
        error = refusal(lambda: converted(source, tmp_path, "i2_s"))
    assert error.file == str(tmp_path / "i2_s.gguf")


def _refusing(path: Path, **_: Any) -> Checkpoint:
    raise ConfigError("is odd", kind="config-value", file=path)
