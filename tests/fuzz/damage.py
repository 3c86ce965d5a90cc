"""Damage to sound files: at random places, and aimed at what a file's map says is there."""

import random
import struct
from typing import Any

import gguf_bytes as g
from file_maps import Field, FileMap

BYTES = [0, 1, 0x7F, 0x80, 0xFF, ord("{"), ord('"'), ord("9"), ord("-"), ord("\\"), 0xED]
NUMBERS = [*range(4), 7, 2**7, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**60]
NUMBERS += [2**63 - 1, 2**63, 2**64 - 1]
TYPES = [*range(15), 30, *range(34, 43), 45, 142, 143, 144, 200]  # of values and of tensors
# Payload bytes: code 3 in two layouts, all -1, all 0, all +1, nibbles of TL1 beyond 8, base-3 bytes beyond 242.
PATTERNS = [0xFF, 0xC0, 0x03, 0x00, 0x55, 0xAA, 0x9F, 0xF9, 0xEE, 0xF3]
FLOATS = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, -1.5, 1e-45, 65504.0]


# ---- any bytes ---------------------------------------------------------------------------------------------------


def flip(data: bytearray, at: int, rng: random.Random) -> None:
    data[at] ^= 1 << rng.randrange(8)


def scatter(data: bytes, begin: int, end: int, rng: random.Random) -> bytes:
    """One to four edits between two places: flips, bytes set, runs, insertions, deletions, copies."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(begin, max(begin + 1, min(end, len(out))))
        edit = rng.randrange(6)
        if at >= len(out):
            out += b"\0"
        elif edit == 0:
            flip(out, at, rng)
        elif edit == 1:
            out[at] = rng.choice(BYTES)
        elif edit == 2:
            out[at : at + 8] = rng.choice(NUMBERS).to_bytes(8, "little")
        elif edit == 3:
            out[at:at] = bytes(rng.choice(BYTES) for _ in range(rng.randint(1, 9)))
        elif edit == 4:
            del out[at : at + rng.randint(1, 9)]
        else:
            other = rng.randrange(begin, max(begin + 1, min(end, len(out))))
            out[at:at] = out[other : other + rng.randint(1, 64)]
    return bytes(out)


def cut(data: bytes, rng: random.Random, places: list[int]) -> bytes:
    """Shortened, anywhere or near one of these places; sometimes lengthened."""
    near = rng.choice(places) + rng.choice([-1, 0, 1]) if places and rng.random() < 0.5 else rng.randrange(len(data))
    return data + bytes(rng.choice([1, 31, 32, 64])) if rng.random() < 0.1 else data[: max(0, near)]


def spoil(data: bytes, payloads: list[tuple[int, int]], rng: random.Random) -> bytes:
    """Payload bytes alone: patterns that stand for no trit, and floats where scales lie, at the ends of payloads."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        begin, end = rng.choice(payloads)
        if end <= begin:
            continue
        edit = rng.randrange(4)
        at = rng.randrange(begin, end)
        if edit == 0:
            flip(out, at, rng)
        elif edit == 1:
            length = min(rng.choice([1, 1, 4, 32, 4096]), end - at)
            out[at : at + length] = bytes([rng.choice(PATTERNS)]) * length
        else:
            raw = floats(rng)
            near = rng.choice([end - 32, end - 4, end - 2, begin, at])
            at = max(begin, min(near, end - len(raw)))
            out[at : at + len(raw)] = raw
    return bytes(out[: len(data)])


def floats(rng: random.Random) -> bytes:
    """A float worth meeting, as float32, float16 or bfloat16."""
    value = rng.choice(FLOATS)
    width = rng.choice("fhb")
    if width == "h":
        return struct.pack("<e", value)
    return struct.pack("<f", value)[2 if width == "b" else 0 :]


# ---- numbers and items of a mapped file --------------------------------------------------------------------------


def renumber(data: bytearray, found: FileMap, rng: random.Random) -> None:
    """One field set to a number worth meeting, moved by a little, or given the value of another of its kind."""
    what = rng.choice(sorted({f.what for f in found.fields}))  # kinds first: offsets are few, lengths are many
    same = [f for f in found.fields if f.what == what]
    at = rng.choice(same)
    old = read(data, at)
    if what == "scale":
        write(data, at, int.from_bytes(struct.pack("<f", rng.choice(FLOATS)), "little"))
        return
    how = rng.randrange(5)
    if how == 0:
        new = rng.choice(TYPES) if what == "type" else rng.choice(NUMBERS)
    elif how == 1:
        new = old + rng.choice([-1, 1, -found.alignment, found.alignment, -32, 32, 256])
    elif how == 2:
        new = rng.choice([old * 2, old // 2, old * 4, old << 32, old ^ (1 << rng.randrange(8 * at.width))])
    elif how == 3:
        new = read(data, rng.choice(same))
    else:  # two fields of a kind change places: names, sizes, types or offsets of two tensors
        other = rng.choice(same)
        new = read(data, other)
        write(data, other, old)
    write(data, at, new)


def read(data: bytes | bytearray, at: Field) -> int:
    return int.from_bytes(data[at.at : at.at + at.width], "little")


def write(data: bytearray, at: Field, value: int) -> None:
    data[at.at : at.at + at.width] = (value % (1 << 8 * at.width)).to_bytes(at.width, "little")


def rearrange(data: bytes, found: FileMap, rng: random.Random) -> bytes:
    """An item doubled, dropped, or exchanged with another; the count follows it three times in four."""
    item, out = rng.choice(found.items), bytearray(data)
    how = rng.randrange(3)
    if how < 2 and rng.random() < 0.75:
        write(out, item.count, read(out, item.count) + (1, -1)[how])
    raw = data[item.begin : item.end]
    if how == 0:
        where = rng.choice([i for i in found.items if i.count == item.count]).end
        out[where:where] = raw
    elif how == 1:
        del out[item.begin : item.end]
    else:
        first, second = sorted((item, rng.choice(found.items)), key=lambda i: i.begin)
        if first.end > second.begin:
            return data
        between = data[first.end : second.begin]
        out[first.begin : second.end] = data[second.begin : second.end] + between + data[first.begin : first.end]
    return padded(bytes(out), len(out) - len(data), found, rng)


def padded(data: bytes, grown: int, found: FileMap, rng: random.Random) -> bytes:
    """The data begins at a multiple of the alignment again after a header that has grown; not always."""
    if not grown or found.alignment == 1 or rng.random() < 0.2:
        return data
    header = found.header + grown
    return data[:header] + bytes(-header % found.alignment) + data[found.start + grown :]


# ---- metadata of a GGUF file -------------------------------------------------------------------------------------


def _values(rng: random.Random) -> tuple[int, Any]:
    """A value of some type, as ``gguf_bytes.pair`` takes it."""
    kind = rng.choice([g.U8, g.I8, g.U16, g.U32, g.I32, g.I64, g.U64, g.F32, g.F64, g.BOOL, g.STRING, g.ARRAY])
    if kind == g.STRING:
        return kind, rng.choice(
            ["", "llama", "bitnet", "bitnet-25", "gpt2", "none", "linear", "64", "4rows", "\x1b[2J", "x" * 300]
        )
    if kind == g.ARRAY:
        item = rng.choice([g.STRING, g.U32, g.I32, g.F32, g.BOOL, g.U8])
        count = rng.choice([0, 1, 2, 3, 8])
        items = [rng.choice(["", "a", "a b", "é", "<0x41>"]) for _ in range(count)] if item == g.STRING else [1] * count
        return kind, g.array(item, items, rng.choice([None, None, None, 2**32, 2**63]))
    if kind in (g.F32, g.F64):
        return kind, rng.choice(FLOATS)
    if kind == g.BOOL:
        return kind, rng.choice([0, 1])
    bits = {g.U8: 8, g.I8: 7, g.U16: 16, g.U32: 32, g.I32: 31, g.I64: 63, g.U64: 64}[kind]
    return kind, rng.choice(NUMBERS) % (1 << bits)


# Keys that readers look for and a sound file need not have; {arch} is the architecture's name.
KEYS = [
    *("general.alignment", "general.architecture", "general.file_type", "tritgold.i2_s", "tritgold.text.config.json"),
    *("tritgold.tile.16x16", "tritgold.tile.256x256", "tritgold.tile." + "9" * 5000 + "x1", "tritgold.tile.\u0663x1"),
    *("{arch}.rope.scaling.type", "{arch}.rope.scaling.factor", "{arch}.rope.freq_scale", "{arch}.hidden_activation"),
    *("{arch}.attention.key_length", "{arch}.attention.value_length", "{arch}.attention.sliding_window"),
    *("{arch}.rope.scaling.original_context_length", "{arch}.rope.scaling.attn_factor", "{arch}.embedding_scale"),
    *("{arch}.expert_count", "{arch}.vocab_size", "{arch}.rope.dimension_count", "{arch}.block_count"),
    *("tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.scores"),
    *(
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.mask_token_id",
        "tokenizer.ggml.eot_token_id",
    ),
    *("tokenizer.chat_template", "tokenizer.huggingface.json", "tokenizer.ggml.add_bos_token"),
]


def revalue(data: bytes, found: FileMap, arch: str, rng: random.Random) -> bytes:
    """A metadata pair with another value, of the same type or not; or a pair that was not there."""
    pairs = [item for item in found.items if item.key]
    kind, value = _values(rng)
    out = bytearray(data)
    if rng.random() < 0.6:
        item = rng.choice(pairs)
        out[item.begin : item.end] = g.pair(item.key, kind, value)
    else:
        at = rng.choice(pairs)
        write(out, at.count, len(pairs) + 1)
        out[at.end : at.end] = g.pair(rng.choice(KEYS).format(arch=arch), kind, value)
    return padded(bytes(out), len(out) - len(data), found, rng)
