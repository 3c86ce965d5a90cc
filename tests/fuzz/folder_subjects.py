"""Hugging Face folders to be damaged: weights, configuration, texts, shards and their index, float masters."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
from damage import cut, scatter, spoil
from json_damage import rewrite
from small_models import bf16_entry, planned, seeded
from subject import Damage, Subject, short

from tritgold.formats.safetensors_file import INDEX
from tritgold.formats.safetensors_writer import write_sharded
from tritgold.formats.texts.bpe_tokenizer import BpeTokenizer
from tritgold.formats.texts.tokenizer_file_writer import write_tokenizer_file

PEERS = Path(__file__).parents[1] / "peers" / "fixtures"


def folder_subjects(folder: Path) -> list[Subject]:
    model = short(seeded(folder / "folder"))
    model.tokenizer = write_tokenizer_file(BpeTokenizer("gpt2", list("abcdefgh"), [], pre="gpt-2"))
    files = _read(model.write(folder / "folder" / "hf"))
    files["tokenizer_config.json"] = b'{"chat_template": [{"name": "default", "template": "{{ x }}"}]}'
    shards = dict(files)
    del shards["model.safetensors"]
    sharded = folder / "folder" / "shards"
    sharded.mkdir()
    write_sharded(sharded, planned(model.entries), {"format": "pt"}, 700)
    shards |= _read(sharded)
    online = replace(model, entries=dict(model.entries), config=json.loads(json.dumps(model.config)))
    online.config["quantization_config"] |= {"quantization_mode": "online"}
    for name in [n for n in online.entries if n.endswith("_scale")]:
        weight = name.removesuffix("_scale")
        rows, columns = online.entries[weight].shape
        del online.entries[name]
        online.entries[weight] = bf16_entry(np.resize(np.float32([0.5, -1, 0, 2, 0.25]), (4 * rows, columns)))
    masters = _read(online.write(folder / "folder" / "online"))
    overlay = dict(shards)
    stale = max(name for name in overlay if name.endswith(".safetensors"))
    late = stale.replace("model-", "new-")  # a copy of the last shard, which the index prefers to it
    overlay[late] = overlay[stale]
    overlay[INDEX] = overlay[INDEX].replace(stale.encode(), late.encode(), 1)
    gemma = _read(PEERS / "gemma3-auto-offline" / "checkpoint")
    qwen = _read(PEERS / "qwen2-bitlinear-yarn-window" / "checkpoint")
    granite = _read(PEERS / "granite-auto-offline-scores" / "checkpoint")
    texts = [name for name in files if name.startswith("tokenizer")]
    return [
        Subject("safetensors", 22, files, "", _safetensors(files, "model.safetensors")),
        Subject("config", 10, files, "", _json(files, ["config.json"])),
        Subject("texts", 2, files, "", _json(files, texts)),
        Subject("shards", 6, shards, "", _shards(shards)),
        Subject("overlay", 2, overlay, "", _shards(overlay)),
        Subject("config-gemma3", 2, gemma, "", _json(gemma, ["config.json"])),
        Subject("config-qwen2", 2, qwen, "", _json(qwen, ["config.json"])),
        Subject("config-granite", 1, granite, "", _json(granite, ["config.json"])),
        Subject("masters", 4, masters, "", _safetensors(masters, "model.safetensors")),
    ]


def _read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _safetensors(files: dict[str, bytes], name: str) -> Damage:
    data = files[name]
    length = int.from_bytes(data[:8], "little")
    text, payload = data[8 : 8 + length].decode(), data[8 + length :]
    spans = [
        (8 + length + t["data_offsets"][0], 8 + length + t["data_offsets"][1])
        for key, t in json.loads(text).items()
        if key != "__metadata__"
    ]

    def damage(rng: random.Random) -> dict[str, bytes]:
        how = rng.random()
        if how < 0.50:
            raw = rewrite(text, rng).encode("utf-8", "surrogatepass")
            out = len(raw).to_bytes(8, "little") + raw + payload
        elif how < 0.70:
            out = scatter(data, 0, 8 + length, rng)
            if rng.random() < 0.75:  # the length follows
                out = (length + len(out) - len(data)).to_bytes(8, "little", signed=True) + out[8:]
        elif how < 0.92:
            out = spoil(data, spans, rng)
        else:
            out = cut(data, rng, [8, 8 + length, *(end for _, end in spans)])
        return {name: out}

    return damage


def _json(files: dict[str, bytes], names: list[str]) -> Damage:
    def damage(rng: random.Random) -> dict[str, bytes]:
        name = rng.choice(names)
        if rng.random() < 0.8:
            return {name: rewrite(files[name].decode(), rng).encode("utf-8", "surrogatepass")}
        return {name: scatter(files[name], 0, len(files[name]), rng)}

    return damage


def _shards(files: dict[str, bytes]) -> Damage:
    names = [name for name in files if name.endswith(".safetensors")]
    index = _json(files, [INDEX])

    def damage(rng: random.Random) -> dict[str, bytes]:
        if rng.random() < 0.5:
            return index(rng)
        name = rng.choice(names)
        if rng.random() < 0.1:  # one shard in the place of another
            return {name: files[rng.choice(names)]}
        return hurt[name](rng)

    hurt = {name: _safetensors(files, name) for name in names}
    return damage
