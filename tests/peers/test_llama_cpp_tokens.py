"""Tokenizers in GGUF metadata, against llama.cpp itself: it opens the file and gives the ids of the tokenizers library.

Runs where TRITGOLD_PEERS_PYTHON names a Python that has xllamacpp (``make peers`` makes one).
"""

import json
import os
import random
import subprocess
from pathlib import Path

import gguf_bytes as g
import numpy as np
import pytest
from tokenizer_files import SPM_TOKENS, TELLING, as_text, ruled_file, spm_file
from tokenizers import Tokenizer as Library

from tritgold.config import ModelConfig
from tritgold.formats.gguf_metadata import gguf_metadata
from tritgold.formats.texts.gguf_tokenizer import tokenizer_metadata
from tritgold.golden import trained_model
from tritgold.golden.seeded import byte_tokenizer

PYTHON = os.environ.get("TRITGOLD_PEERS_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="llama.cpp runs only where TRITGOLD_PEERS_PYTHON names its python")

RULES = ("gpt-2", "llama-bpe", "smaug-bpe", "qwen2", "smollm", "falcon", "default")
# tokenizer.json, its BOS and EOS, rows of the embedding.
CASES = {
    "kjv-ar": ((trained_model("kjv-ar") / "tokenizer.json").read_text(encoding="utf-8"), 0, (1, 2), 2050),
    "seeded": (byte_tokenizer(), 256, (257, 258), 300),
    "sentencepiece": (as_text(spm_file()), 1, (2,), len(SPM_TOKENS)),
    "sentencepiece, no prefix": (as_text(spm_file(prefix=False)), 1, (2,), len(SPM_TOKENS)),
    **{pre: (as_text(ruled_file(pre)), 0, (1,), 600) for pre in RULES},
}
WIDTH = 32


def texts() -> list[str]:
    """Pieces of the telling texts, put together again; none that NFC would change, which llama.cpp leaves out."""
    draw, whole = random.Random(5), "|".join(TELLING).replace("\u0301", "")
    cuts = [[draw.randrange(len(whole)) for _ in range(draw.randrange(1, 7))] for _ in range(200)]
    return [*whole.split("|"), *("".join(whole[at : at + 1 + at % 9] for at in cut) for cut in cuts)]


def write_model(path: Path, case: str) -> Path:
    """The smallest model that llama.cpp opens, with the tokenizer of the case."""
    text, bos, eos, rows = CASES[case]
    config = ModelConfig(
        vocab=rows, hidden=WIDTH, inter=WIDTH, layers=1, heads=2, kv_heads=2, head_dim=WIDTH // 2, context=64,
        norm_eps=1e-5, rope_theta=1e4, activation="silu", sub_norms=False, tied_head=True, scale_rule="multiply",
        bos=bos, eos=eos,
    )  # fmt: skip
    pairs = []
    for key, value in (
        gguf_metadata(config, "llama", case, 0) | tokenizer_metadata(text, bos, eos, None, rows)
    ).items():
        if isinstance(value, list):
            pairs.append(g.pair(key, g.ARRAY, g.array(g.STRING, value)))
        elif isinstance(value, np.ndarray):
            pairs.append(g.pair(key, g.ARRAY, g.array(g.F32 if value.dtype.kind == "f" else g.I32, value.tolist())))
        else:
            kind = {bool: g.BOOL, int: g.U32, float: g.F32, str: g.STRING}[type(value)]
            pairs.append(g.pair(key, kind, value))
    names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes = {f"blk.0.{name}": (WIDTH, WIDTH) for name in names}
    shapes |= {"token_embd": (rows, WIDTH), "output_norm": (WIDTH,)}
    shapes |= {f"blk.0.{name}": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
    tensors = [g.f32(f"{name}.weight", np.ones(shape, np.float32)) for name, shape in shapes.items()]
    path.write_bytes(g.gguf(pairs, tensors))
    return path


@pytest.mark.parametrize("case", CASES)
def test_llama_cpp_gives_the_same_ids(case: str, tmp_path: Path) -> None:
    asked, library = texts(), Library.from_str(CASES[case][0])
    command = [
        PYTHON,
        str(Path(__file__).with_name("llama_cpp_tokens.py")),
        str(write_model(tmp_path / "m.gguf", case)),
    ]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for text, ids in zip(asked, json.loads(done.stdout), strict=True):
        assert ids == library.encode(text).ids, text
