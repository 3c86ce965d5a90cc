"""One model in several formats is one model: equal hash, equal bits in every activation."""

from dataclasses import replace
from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from small_models import (
    TINY,
    WIDE,
    GgufModel,
    HfModel,
    as_gguf,
    bf16_entry,
    llama_like,
    packed_entries,
    payload,
    seeded,
)

from tritgold.checkpoint import NOT_ARITHMETIC, Checkpoint, open_checkpoint
from tritgold.formats.rope_rows import interleaved_rows
from tritgold.model import forward
from tritgold.trace import Trace

TOKENS = [256, 84, 104, 101, 32, 99, 97, 116]  # positions 0 and last count: RoPE does nothing at 0


def run(opened: Checkpoint) -> tuple[np.ndarray, str]:
    """Logits, and the digest of every activation on the way."""
    trace = Trace()
    logits = forward(TOKENS, opened.weights, opened.config, trace=trace)
    return logits, trace.digest()


def test_hf_i2_s_and_tq2_0_are_one_model(tmp_path: Path) -> None:
    """The seeded scales came from bf16 and lie in float16's normal range, so TQ2_0 holds them exactly."""
    hf = open_checkpoint(seeded(tmp_path, WIDE).write(tmp_path / "hf"))
    i2_s = open_checkpoint(as_gguf(hf, "bitnet-b1.58").write(tmp_path / "i2_s.gguf"))
    tq2_0 = open_checkpoint(as_gguf(hf, "bitnet-25", g.TYPE_TQ2_0).write(tmp_path / "tq2_0.gguf"))
    assert i2_s.config == tq2_0.config == hf.config
    assert i2_s.model_hash() == tq2_0.model_hash() == hf.model_hash()
    assert run(i2_s)[1] == run(tq2_0)[1] == run(hf)[1]


def test_a_ragged_matrix_survives_hf_and_i2_s(tmp_path: Path) -> None:
    """inter = 24: gate and up have 24 rows, and down's I2_S blocks straddle its rows."""
    model = seeded(tmp_path)
    random = np.random.default_rng(24)
    for name, shape in {"gate": (24, 16), "up": (24, 16), "down": (16, 24)}.items():
        trits = random.integers(-1, 2, shape, np.int8)
        model.entries |= packed_entries(f"model.layers.0.mlp.{name}_proj", trits, np.float32(0.75))
    model.entries["model.layers.0.mlp.ffn_sub_norm.weight"] = bf16_entry(np.ones(24, np.float32))
    model.config["intermediate_size"] = 24
    hf = open_checkpoint(model.write(tmp_path / "hf"))
    i2_s = open_checkpoint(as_gguf(hf, "bitnet-b1.58").write(tmp_path / "m.gguf"))
    assert i2_s.model_hash() == hf.model_hash()
    assert run(i2_s)[1] == run(hf)[1]


def change_trit(model: HfModel) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    data = bytearray(model.entries[name].data)
    data[7] = 0x55 if data[7] != 0x55 else 0x54
    model.entries[name] = replace(model.entries[name], data=bytes(data))


def change_scale(model: HfModel) -> None:
    name = "model.layers.0.self_attn.v_proj.weight_scale"
    model.entries[name] = bf16_entry(model.floats(name) * 2)


def change_gain(model: HfModel, name: str = "model.layers.0.mlp.ffn_sub_norm.weight") -> None:
    gain = model.floats(name).copy()
    gain[-1] *= 2
    model.entries[name] = bf16_entry(gain)


def change_embedding(model: HfModel) -> None:
    embedding = model.floats("model.embed_tokens.weight").copy()
    embedding[258, 15] += 1
    model.entries["model.embed_tokens.weight"] = bf16_entry(embedding)


@pytest.mark.parametrize(
    "change",
    [
        change_trit,
        change_scale,
        change_gain,
        lambda model: change_gain(model, "model.norm.weight"),
        change_embedding,
        lambda model: model.config.update(rms_norm_eps=1e-6),
        lambda model: model.config.update(rope_theta=10000.0),
        lambda model: model.config["quantization_config"].update(linear_class="bitlinear"),
    ],
)
def test_the_model_hash_sees_every_change(tmp_path: Path, change: object) -> None:
    """A dropped scale on v, or another eps, changes no logit that anybody would notice; it changes the hash."""
    model = seeded(tmp_path)
    before = open_checkpoint(model.write(tmp_path / "hf")).model_hash()
    assert open_checkpoint(model.write(tmp_path / "hf")).model_hash() == before
    change(model)  # type: ignore[operator]
    assert open_checkpoint(model.write(tmp_path / "hf")).model_hash() != before


def test_the_model_hash_leaves_out_what_no_arithmetic_uses(tmp_path: Path) -> None:
    model = seeded(tmp_path)
    before = open_checkpoint(model.write(tmp_path / "hf")).model_hash()
    model.config.update(eos_token_id=[256, 257], bos_token_id=3, max_position_embeddings=77)
    model.config.update(bd_size=8, mask_token_id=258)
    opened = open_checkpoint(model.write(tmp_path / "hf"))
    assert opened.model_hash() == before
    assert {name: getattr(opened.config, name) for name in NOT_ARITHMETIC} == {
        "context": 77,
        "bos": 3,
        "eos": (256, 257),
        "mask": 258,
        "block": 8,
    }


# ---- q and k rows, bug case B41 ----------------------------------------------------------------------------------


@pytest.fixture
def llama(tmp_path: Path) -> Checkpoint:
    return open_checkpoint(llama_like(tmp_path, TINY).write(tmp_path / "hf"))


def reopened(model: GgufModel, tmp_path: Path) -> Checkpoint:
    return open_checkpoint(model.write(tmp_path / "m.gguf"))


def test_a_llama_saved_both_ways_gives_equal_logits(llama: Checkpoint, tmp_path: Path) -> None:
    gguf = reopened(as_gguf(llama, "llama", permute=True), tmp_path)
    assert (llama.config.scale_rule, gguf.config.scale_rule) == ("divide", "multiply")
    for name in ("q", "k", "v"):
        ours, theirs = gguf.weights.layers[0].linear(name), llama.weights.layers[0].linear(name)
        assert np.array_equal(ours.ternary().trits, theirs.ternary().trits)
    assert run(gguf)[1] == run(llama)[1]


@pytest.mark.parametrize(
    ("arch", "permute"), [("llama", False), ("bitnet-b1.58", True)], ids=["not permuted", "permuted in vain"]
)
def test_a_wrong_permutation_is_seen_behind_position_0(tmp_path: Path, arch: str, permute: bool) -> None:
    model = (llama_like if arch == "llama" else seeded)(tmp_path)
    right = open_checkpoint(model.write(tmp_path / "hf"))
    wrong = reopened(as_gguf(right, arch, permute=permute), tmp_path)
    expected, found = run(right)[0], run(wrong)[0]
    assert np.array_equal(found[0], expected[0])  # a first-token test is blind to it
    assert (found[1:] != expected[1:]).any(axis=1).all()


def test_permuting_the_wrong_way_round_is_seen_too(llama: Checkpoint, tmp_path: Path) -> None:
    """Only at head sizes above 4: for two pairs the permutation is its own inverse."""
    assert llama.config.head_dim == 8
    rows = interleaved_rows(16, 8)
    assert not np.array_equal(rows[rows], np.arange(16))
    model = as_gguf(llama, "llama", permute=True)
    q = llama.weights.layers[0].q.ternary()
    model.alter("blk.0.attn_q.weight", data=payload(q.trits[rows], 1 / float(q.scale), g.TYPE_I2_S))
    assert run(reopened(model, tmp_path))[1] != run(llama)[1]
