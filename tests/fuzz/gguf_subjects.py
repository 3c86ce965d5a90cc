"""GGUF files to be damaged: a plain one, the arrays of both kinds of tokenizer, a linear in each of the types."""

import random
from pathlib import Path

import gguf_bytes as g
import numpy as np
from damage import cut, padded, rearrange, renumber, revalue, scatter, spoil
from file_maps import map_gguf
from small_models import WIDE, as_gguf, llama_like, seeded
from subject import Subject, short

from tritgold.checkpoint import open_checkpoint
from tritgold.convert import Options, convert
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_writer import write_gguf
from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.texts.bpe_tokenizer import BpeTokenizer, byte_token
from tritgold.formats.texts.tokenizer_file_writer import write_tokenizer_file

_TILE = {"BM": 32, "BK": 128, "bm": 32}
TYPES: dict[str, tuple[int, Packing]] = {
    "attn_q": (34, packing("tq1_0")),
    "attn_k": (35, packing("tq2_0")),
    "attn_v": (38, packing("tl1", **_TILE)),
    "attn_output": (39, packing("tl2", BM=32, BK=96)),
    "ffn_gate": (42, packing("q2_0")),
    "ffn_up": (30, packing("bf16")),
    "ffn_down": (1, packing("f16")),
}
IK_TYPES: dict[str, tuple[int, Packing]] = {
    "attn_q": (134, packing("iq1_bn")),
    "attn_k": (135, packing("iq2_bn")),
    "attn_v": (335, packing("iq2_bn_r4")),
}


def gguf_subjects(folder: Path) -> list[Subject]:
    plain = as_gguf(short(seeded(folder / "plain")).write(folder / "plain" / "hf"), "bitnet-b1.58")
    plain.tensors["blk.0.ffn_down.weight"] = plain.tensors.pop("blk.0.ffn_down.weight")  # its trailer ends the file
    plain.set("general.alignment", g.U32, 64)
    tight = g.gguf(plain.pairs.values(), plain.tensors.values(), alignment=64)
    return [
        _gguf("gguf", 28, tight, "bitnet-b1.58", 64),
        _gguf("gguf-tokens", 22, _converted(folder / "tokens", "gpt2"), "bitnet-b1.58"),
        _gguf("gguf-llama", 5, _converted(folder / "llama", "llama"), "llama"),
        _gguf("gguf-types", 9, _every_type(folder / "types", TYPES), "bitnet-b1.58"),
        _split(folder / "split"),
        _gguf("gguf-ik", 3, _every_type(folder / "ik", IK_TYPES), "bitnet-b1.58"),
        _gguf("gguf-llama3", 2, _scaled(folder / "scaled"), "llama"),
        _gguf("gguf-dense", 2, _dense(folder / "dense"), "llama"),
    ]


def _byte_level() -> BpeTokenizer:
    tokens = ["<pad>", "<s>", "</s>", "a", "b", "ab", "Ġ", "Ġa"]
    return BpeTokenizer("gpt2", tokens, [("a", "b"), ("Ġ", "a")], frozenset({0, 1, 2}), pre="gpt-2", first=1)


def _converted(folder: Path, kind: str) -> bytes:
    """A GGUF with all of a tokenizer's arrays, as the converter writes it: byte-level, or SentencePiece's."""
    if kind == "gpt2":
        tokenizer, model = _byte_level(), seeded(folder)
    else:
        tokens = ["<unk>", "<s>", "</s>", *map(byte_token, range(256)), "▁", "a", "▁a"]
        control = frozenset({0, 1, 2})
        tokenizer = BpeTokenizer("llama", tokens, [("▁", "a")], control, unknown=0, space_prefix=True, first=1)
        model = llama_like(folder)
    model.tokenizer = write_tokenizer_file(tokenizer)
    short(model, len(tokenizer.tokens))
    if kind == "llama":
        model.config["eos_token_id"] = [2]
    source, target = model.write(folder / "hf"), folder / "m.gguf"
    convert(open_checkpoint(source), target, "i2_s" if kind == "gpt2" else "gguf-f16", Options())
    raw = target.read_bytes()
    # The tokenizer's own text would be taken instead of the arrays.
    whole = map_gguf(raw)
    drop = [item for item in whole.items if item.key in ("tokenizer.huggingface.json", "tritgold.text.config.json")]
    out = bytearray(raw)
    for item in reversed(drop):
        del out[item.begin : item.end]
    out[16:24] = (int.from_bytes(out[16:24], "little") - len(drop)).to_bytes(8, "little")
    return padded(bytes(out), len(out) - len(raw), whole, _Steady())


def _scaled(folder: Path) -> bytes:
    """Divisors of RoPE in ``rope_freqs.weight``, with the keys of a scaling left to damage."""
    model = short(llama_like(folder))
    model.tokenizer = write_tokenizer_file(_byte_level())
    numbers = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
    model.config["rope_scaling"] = {"rope_type": "llama3", "factor": 8.0, **numbers}
    convert(open_checkpoint(model.write(folder / "hf")), folder / "m.gguf", "gguf-f16", Options())
    return (folder / "m.gguf").read_bytes()


def _dense(folder: Path) -> bytes:
    """Embedding in Q4_K and head in Q6_K, as llama-quantize leaves them: random blocks whose scales are small."""
    model = short(llama_like(folder, WIDE))
    model.tokenizer = write_tokenizer_file(_byte_level())
    convert(open_checkpoint(model.write(folder / "hf")), folder / "m.gguf", "i2_s", Options())
    random_bytes, whole = np.random.default_rng(5), GgufFile(folder / "m.gguf")
    blocks = {"token_embd.weight": ("Q4_K", 144, (0, 2)), "output.weight": ("Q6_K", 210, (208,))}

    def plan(tensor: StoredTensor) -> PlannedTensor:
        dtype, data = tensor.dtype, tensor.data.tobytes()
        if tensor.name in blocks:
            dtype, size, halves = blocks[tensor.name]
            raw = random_bytes.integers(0, 256, (tensor.shape[0] * tensor.shape[1] // 256, size), np.uint8)
            for at in halves:
                raw[:, at : at + 2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
            data = raw.tobytes()
        return PlannedTensor(tensor.name, dtype, tensor.shape, len(data), lambda: [data])

    write_gguf(folder / "dense.gguf", whole.metadata, [plan(tensor) for tensor in whole.tensors.values()])
    return (folder / "dense.gguf").read_bytes()


def _every_type(folder: Path, layouts: dict[str, tuple[int, Packing]]) -> bytes:
    """A linear in each of these types, by its name in the file; others stay I2_S."""
    model = as_gguf(short(seeded(folder, WIDE)).write(folder / "hf"), "bitnet-b1.58")
    weights = dict(open_checkpoint(folder / "hf").weights.linears())
    ours = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o"}
    for name, (type_id, layout) in layouts.items():
        tensor = weights[f"layers.0.{ours.get(name, name.removeprefix('ffn_'))}"].ternary()
        data = layout.pack(tensor.trits, np.float32(0.5))
        model.alter(f"blk.0.{name}.weight", type_id=type_id, data=data)
    rows, columns = weights["layers.0.v"].shape
    for shape, numbers in {(rows, columns): [32, 128, 32], weights["layers.0.o"].shape: [32, 96]}.items():
        model.set(f"tritgold.tile.{shape[0]}x{shape[1]}", g.ARRAY, g.array(g.U32, numbers))
    return g.gguf(model.pairs.values(), model.tensors.values())


def _split(folder: Path) -> Subject:
    """A model in three shards, as gguf-split writes it; one of them is hurt, the first most often."""
    model = short(seeded(folder))
    model.tokenizer = write_tokenizer_file(BpeTokenizer("gpt2", list("abcdefgh"), [], pre="gpt-2"))
    source = open_checkpoint(model.write(folder / "hf"))
    done = convert(source, folder / "m.gguf", "i2_s", Options(shard_bytes=900))
    files = {path.name: path.read_bytes() for path in sorted(folder.glob("m-*.gguf"))}
    names = list(files)
    whole = {name: _gguf(name, 0, data, "bitnet-b1.58") for name, data in files.items()}

    def damage(rng: random.Random) -> dict[str, bytes]:
        name = rng.choice([names[0], *names])
        if rng.random() < 0.05:
            return {name: files[rng.choice([other for other in names if other != name])]}
        return {name: whole[name].damage(rng)["m.gguf"]}

    return Subject("gguf-split", 4, files, done.path.name, damage)


def _gguf(name: str, share: int, data: bytes, arch: str, alignment: int = 32) -> Subject:
    found = map_gguf(data, alignment)

    def damage(rng: random.Random) -> dict[str, bytes]:
        how = rng.random()
        if how < 0.30:
            raw = bytearray(data)
            for _ in range(rng.randint(1, 2)):
                renumber(raw, found, rng)
            out = bytes(raw)
        elif how < 0.50:
            out = revalue(data, found, arch, rng)
        elif how < 0.65:
            out = rearrange(data, found, rng)
        elif how < 0.80:
            out = scatter(data, 0, found.header, rng)
            out = padded(out, len(out) - len(data), found, rng)
        elif how < 0.95:
            out = spoil(data, found.payloads, rng)
        else:
            out = cut(data, rng, [*(end for _, end in found.payloads), *(item.end for item in found.items)])
        return {"m.gguf": out}

    return Subject(name, share, {"m.gguf": data}, "m.gguf", damage)


class _Steady(random.Random):
    """Never leaves the padding out."""

    def random(self) -> float:
        return 1.0
