"""Every pair of formats; and the bytes of each target read by somebody else."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from conversions import TO_BITNET, TO_IK_LLAMA, bitnet, converted, llama, masters, options, same_trits, silu
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import load_file, save_file
from small_models import LINEARS, WIDE, interleave, seeded

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import TARGETS, convert
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.layouts import Layouts

TO_LLAMA = ("hf", "i2_s", "tl1", "tl2", "sglbitnt", "gguf-f32")  # the others hold float16 scales


def test_every_target_is_in_the_tests() -> None:
    assert {*TO_BITNET, *TO_IK_LLAMA} == set(TARGETS)


@pytest.mark.parametrize("source", [bitnet, silu], ids=["bitnet", "silu"])
@pytest.mark.parametrize(
    ("first", "second"), [*product(TO_BITNET, TO_BITNET), *((name, name) for name in TO_IK_LLAMA), ("iq2_bn", "hf")]
)
def test_every_pair_of_formats(source, first: str, second: str, tmp_path: Path) -> None:
    """The hash covers configuration, trits, scales and floats: everything the arithmetic uses."""
    hf = open_checkpoint(source(tmp_path))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    middle = converted(hf, tmp_path / "a", first)
    assert middle.model_hash() == hf.model_hash()
    last = converted(middle, tmp_path / "b", second)
    assert last.model_hash() == hf.model_hash()
    assert last.config == hf.config
    assert last.tokenizer_json() == hf.tokenizer_json()
    assert last.chat_template() == hf.chat_template()


@pytest.mark.parametrize(("first", "second"), list(product(TO_LLAMA, TO_LLAMA)))
def test_every_pair_of_a_llama_that_divides(first: str, second: str, tmp_path: Path) -> None:
    """The scale turns round on the way to GGUF and back: bit for bit the stored one again."""
    hf = open_checkpoint(llama(tmp_path))
    for name in "abc":
        (tmp_path / name).mkdir()
    middle = converted(hf, tmp_path / "a", first)
    last = converted(middle, tmp_path / "b", second)
    home = converted(last, tmp_path / "c", "hf", scale_rule="divide")
    assert home.model_hash() == hf.model_hash()
    assert same_trits(middle, hf)


def weights(opened: Checkpoint) -> dict[str, np.ndarray]:
    """GGUF name -> trits x scale, float32; scales multiply here."""
    assert opened.config.scale_rule == "multiply"
    return {
        f"blk.{index}.{LINEARS[name]}.weight": layer.linear(name).ternary().dense()
        for index, layer in enumerate(opened.weights.layers)
        for name in LINEARS
    }


@pytest.mark.parametrize("to", ["tq1_0", "tq2_0", "gguf-f16", "gguf-f32"])
def test_gguf_reads_our_file(to: str, tmp_path: Path) -> None:
    hf = open_checkpoint(bitnet(tmp_path))
    converted(hf, tmp_path, to)
    theirs = GGUFReader(tmp_path / f"{to}.gguf")
    found = {t.name: dequantize(t.data, t.tensor_type) for t in theirs.tensors}
    for name, expected in weights(hf).items():
        assert np.array_equal(found[name].astype(np.float32), expected), name
    assert np.array_equal(found["output_norm.weight"], hf.weights.final_norm)
    assert theirs.fields["bitnet-b1.58.embedding_length"].contents() == 256
    assert theirs.fields["tokenizer.ggml.eos_token_id"].contents() == 257


def test_i2_s_bytes_are_those_of_a_second_writing(tmp_path: Path) -> None:
    hf = open_checkpoint(bitnet(tmp_path))
    converted(hf, tmp_path, "i2_s")
    file = GgufFile(tmp_path / "i2_s.gguf")
    for index, layer in enumerate(hf.weights.layers):
        for name, theirs in LINEARS.items():
            tensor = layer.linear(name).ternary()
            expected = g.i2_s((tensor.trits.reshape(-1).astype(int) + 1).tolist(), float(tensor.scale))
            assert file.tensors[f"blk.{index}.{theirs}.weight"].data.tobytes() == expected


def test_q_and_k_are_permuted_as_llama_cpp_permutes_them(tmp_path: Path) -> None:
    hf = open_checkpoint(llama(tmp_path))
    converted(hf, tmp_path, "gguf-f32")
    theirs = {t.name: dequantize(t.data, t.tensor_type) for t in GGUFReader(tmp_path / "gguf-f32.gguf").tensors}
    layer = hf.weights.layers[0]
    for name, heads in (("q", hf.config.heads), ("k", hf.config.kv_heads), ("v", None)):
        trits = layer.linear(name).ternary().trits
        expected = interleave(trits, heads) if heads else trits
        assert np.array_equal(np.sign(theirs[f"blk.0.{LINEARS[name]}.weight"]), expected), name
    assert not np.array_equal(np.sign(theirs["blk.0.attn_q.weight"]), layer.q.ternary().trits)


def test_safetensors_of_a_folder_are_those_of_the_reference_writer(tmp_path: Path) -> None:
    """Byte for byte: order, header, padding."""
    converted(bitnet(tmp_path), tmp_path, "hf")
    save_file(load_file(tmp_path / "hf" / "model.safetensors"), tmp_path / "theirs", {"format": "pt"})
    assert (tmp_path / "hf" / "model.safetensors").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_the_way_round_ends_where_it_began(tmp_path: Path) -> None:
    """HF -> I2_S -> TQ2_0 -> TL1 -> HF: every file of the folder, byte for byte; CRLF and é included."""
    source = bitnet(tmp_path)
    at: Checkpoint | Path = source
    for to in ("i2_s", "tq2_0", "tl1", "hf"):
        at = converted(at, tmp_path, to)
    before = {file.name: file.read_bytes() for file in source.iterdir()}
    assert {file.name: file.read_bytes() for file in (tmp_path / "hf").iterdir()} == before


def test_two_shards_are_the_same_model(tmp_path: Path) -> None:
    hf = open_checkpoint(bitnet(tmp_path))
    sharded = converted(hf, tmp_path, "hf", shard_bytes=200_000)
    assert len(list((tmp_path / "hf").glob("*.safetensors"))) > 1
    assert sharded.model_hash() == hf.model_hash()


def test_an_arm_file_is_turned_into_a_standard_one(tmp_path: Path) -> None:
    """--i2s 64 for the source, 128 for the result: the repair for files of ARM builds."""
    hf = open_checkpoint(bitnet(tmp_path))
    convert(hf, tmp_path / "arm.gguf", "i2_s", options("i2_s", layouts=Layouts(i2_s="64")))
    repaired = converted(open_checkpoint(tmp_path / "arm.gguf"), tmp_path, "i2_s")
    assert repaired.model_hash() == hf.model_hash()
    arm, x86 = (GgufFile(tmp_path / name).tensors["blk.0.attn_q.weight"].data for name in ("arm.gguf", "i2_s.gguf"))
    assert not np.array_equal(arm, x86)


def test_a_foreign_i2_s_file_is_read_as_asked(tmp_path: Path) -> None:
    """Without the key of ours nothing tells 64 from 128: the default reads other weights, without complaint."""
    hf = open_checkpoint(bitnet(tmp_path))
    path = tmp_path / "arm.gguf"
    convert(hf, path, "i2_s", options("i2_s", layouts=Layouts(i2_s="64")))
    path.write_bytes(path.read_bytes().replace(b"tritgold.i2_s", b"general.i2_s_"))
    assert not same_trits(open_checkpoint(path), hf)
    assert same_trits(open_checkpoint(path, layouts=Layouts(i2_s="64")), hf)


def test_a_hybrid_of_types_where_asked(tmp_path: Path) -> None:
    """B29: rows that are not whole blocks are refused, or kept in another lossless type, which is said."""
    model = seeded(tmp_path, replace(WIDE, inter=384))
    hf = open_checkpoint(model.write(tmp_path / "ragged"))
    done = convert(hf, tmp_path / "m.gguf", "tq2_0", options("tq2_0", fallback="F16"))
    assert done.other_type == {"blk.0.ffn_down.weight": "F16"}
    assert open_checkpoint(tmp_path / "m.gguf").model_hash() == hf.model_hash()


def test_the_summary_counts_what_is_in_the_file(tmp_path: Path) -> None:
    """B65: the type asked for is the type written, with its bits a weight."""
    hf = open_checkpoint(bitnet(tmp_path))
    done = convert(hf, tmp_path / "m.gguf", "i2_s", options("i2_s"))
    file = GgufFile(tmp_path / "m.gguf")
    for dtype, (count, size) in done.types.items():
        stored = [t for t in file.tensors.values() if t.dtype == dtype]
        assert (len(stored), sum(t.data.size for t in stored)) == (count, size)
    assert done.types["I2_S"][0] == done.linears == 7
    weights = sum(np.prod(shape) for shape in (hf.config.linear_shape(name) for name in LINEARS))
    assert done.bits_per_weight == 2 + 8 * 32 * 7 / weights


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    convert(
        open_checkpoint(bitnet(tmp_path)), tmp_path / "m.gguf", "tq1_0", options("tq1_0"), lambda *s: seen.append(s)
    )
    assert seen[-1] == ("proving", 0, 0)
    assert seen[-2][1] == seen[-2][2] > 0
    assert [done for _, done, _ in seen[:-1]] == sorted(done for _, done, _ in seen[:-1])


def test_masters_become_trits_where_asked(tmp_path: Path) -> None:
    """absmean by hand: trit = clip(rint(w / max(mean|w|, 1e-5)), -1, 1), scale = mean|w|."""
    hf = open_checkpoint(bitnet(tmp_path))
    values = np.random.default_rng(4).normal(0, 0.02, (256, 256)).astype(np.float32)
    path = tmp_path / "masters"
    folder = masters(hf, path, values)
    opened = open_checkpoint(folder, quantize=True)
    result = converted(opened, tmp_path, "i2_s", quantize=True)
    tensor = result.weights.layers[0].q.ternary()
    mean = np.abs(values.astype(np.float64)).mean()
    assert np.array_equal(tensor.trits, np.clip(np.rint(values * np.float32(1 / np.float32(mean))), -1, 1))
    assert tensor.scale == pytest.approx(mean, rel=1e-6)
