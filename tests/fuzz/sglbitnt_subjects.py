"""SGLBITNT files to be damaged, one in each dialect."""

import json
import random

import numpy as np
import sglbitnt_bytes as sgl
from damage import cut, rearrange, renumber, scatter, spoil
from file_maps import FileMap, map_sglbitnt
from json_damage import rewrite
from subject import Subject


def sglbitnt_subject(always: bool) -> Subject:
    """Rows must be multiples of 128: the smallest such model, with few rows."""
    width = 128
    config = {
        "architectures": ["BitNetForCausalLM"],
        "model_type": "bitnet",
        "hidden_act": "relu2",
        "hidden_size": width,
        "intermediate_size": width,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 16,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": 2,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    at = "model.layers.0"
    gains = ("input_layernorm", "post_attention_layernorm", "self_attn.attn_sub_norm", "mlp.ffn_sub_norm")
    tensors = [sgl.f32("model.embed_tokens.weight", np.resize(np.float32([1, -2, 0.5]), (2, width)))]
    tensors += [sgl.f32(f"{at}.{gain}.weight", np.ones(width)) for gain in gains]
    rows = {"q": width, "k": width // 2, "v": width // 2, "o": width}
    names = {f"{at}.self_attn.{name}_proj.weight": count for name, count in rows.items()}
    names |= {f"{at}.mlp.{name}_proj.weight": width for name in ("gate", "up", "down")}
    for name, count in names.items():
        trits = np.resize(np.int8([1, 0, -1, 1, 1, 0, -1]), (count, width))
        tensors.append(sgl.packed(name, trits, 0.5))
    tensors.append(sgl.f32("model.norm.weight", np.ones(width)))
    data = sgl.sglbitnt(config, tensors, always=always)
    found = map_sglbitnt(data, always)
    text = json.dumps(config)
    heads = _heads(found)

    def damage(rng: random.Random) -> dict[str, bytes]:
        how = rng.random()
        if how < 0.30:
            raw = bytearray(data)
            for _ in range(rng.randint(1, 2)):
                renumber(raw, found, rng)
            out = bytes(raw)
        elif how < 0.45:
            raw_text = rewrite(text, rng).encode("utf-8", "surrogatepass")
            out = data[:12] + len(raw_text).to_bytes(4, "little") + raw_text + data[16 + len(text) :]
        elif how < 0.60:
            out = rearrange(data, found, rng)
        elif how < 0.75:
            out = scatter(data, *rng.choice(heads), rng)
        elif how < 0.95:
            out = spoil(data, found.payloads, rng)
        else:
            out = cut(data, rng, [item.end for item in found.items])
        return {"m.bin": out}

    return Subject("sglbitnt-always" if always else "sglbitnt-optional", 13, {"m.bin": data}, "m.bin", damage)


def _heads(found: FileMap) -> list[tuple[int, int]]:
    """What lies before the data of each tensor, and the file's own head."""
    begins = [item.begin for item in found.items]
    return [(0, begins[0]), *((begin, data[0]) for begin, data in zip(begins, found.payloads, strict=True))]
