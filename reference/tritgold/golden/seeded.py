"""A model made from a seed: a small BitNet b1.58 with random trits and realistic scales.

The text it generates is noise. Its purpose: every operation of the graph gets values as large as in real models
(sub-norm gains, scales near 1.5 that differ between projections, a residual stream that grows with each layer), from
a little code instead of a file. Numbers come from a counter-based hash in integer arithmetic, so the same seed gives
the same bytes on every machine; NumPy does not guarantee this for its generators' distributions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from tritgold.config import ModelConfig
from tritgold.counter_random import random_bits
from tritgold.formats.container import PlannedTensor
from tritgold.formats.hf_config_writer import hf_config
from tritgold.formats.hf_writer import bf16_tensor, packed_tensors, write_hf_folder

SPECIAL = ("<bos>", "<eos>", "<eot>")
ROWS = 4096  # rows of a float matrix in memory at once


@dataclass(frozen=True)
class Shape:
    """Sizes of a seeded model. The default vocabulary is the 256 bytes and the special tokens: 259, an odd number."""

    seed: int = 158
    vocab: int = 256 + len(SPECIAL)
    hidden: int = 256
    inter: int = 768
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    context: int = 512


SHAPES = {
    "seeded": Shape(),
    # For examples and tests: a check takes a few seconds.
    "small": Shape(hidden=64, inter=192, layers=2, context=64),
    # The sizes of BitNet b1.58 2B-4T: 1.2 GB on disk; to measure memory and time with a model of real size.
    "2b-4t": Shape(vocab=128_256, hidden=2560, inter=6912, layers=30, heads=20, kv_heads=5, context=4096),
}


def write_seeded_model(folder: Path, shape: Shape) -> None:
    """Write the model as a Hugging Face folder (packed uint8, bf16 floats, config.json, tokenizer.json).

    One tensor is in memory at a time.
    """
    tensors, texts = _tensors(shape), {"tokenizer.json": byte_tokenizer()}
    write_hf_folder(folder, _config(shape, shape.hidden // shape.heads), tensors, texts)


def _tensors(shape: Shape) -> Iterator[PlannedTensor]:
    """The tensors, in the order of their random numbers. The numbers of a matrix are made when it is written."""
    draw = _Draws(shape.seed)
    kv_width = shape.kv_heads * (shape.hidden // shape.heads)
    gains = {
        "input_layernorm": (shape.hidden, 0.5),
        "post_attention_layernorm": (shape.hidden, 1.3),
        "self_attn.attn_sub_norm": (shape.hidden, 0.3),
        "mlp.ffn_sub_norm": (shape.inter, 1.25),
    }
    linears = {
        "self_attn.q_proj": (shape.hidden, shape.hidden),
        "self_attn.k_proj": (kv_width, shape.hidden),
        "self_attn.v_proj": (kv_width, shape.hidden),
        "self_attn.o_proj": (shape.hidden, shape.hidden),
        "mlp.gate_proj": (shape.inter, shape.hidden),
        "mlp.up_proj": (shape.inter, shape.hidden),
        "mlp.down_proj": (shape.hidden, shape.inter),
    }
    matrix = (shape.vocab, shape.hidden)
    embedding = draw.later(12 * shape.vocab * shape.hidden)
    yield bf16_tensor("model.embed_tokens.weight", matrix, lambda: embedding().normal_rows(matrix, 0.7))
    for n in range(shape.layers):
        at = f"model.layers.{n}"
        for name, (width, centre) in gains.items():
            yield _gain(f"{at}.{name}.weight", centre * (1 + draw.normal((width,), 0.2)))
        for name, size in linears.items():
            # Scales of about 3 / sqrt(in), never 1 and never equal: equal scales would hide a swap of two scales.
            scale = (2.5 + draw.uniform((1,))) / np.float32(np.sqrt(size[1]))
            yield from _linear(f"{at}.{name}", size, draw.later(size[0] * size[1]), scale)
    yield _gain("model.norm.weight", 1 + draw.normal((shape.hidden,), 0.2))


def _gain(name: str, values: np.ndarray) -> PlannedTensor:
    return bf16_tensor(name, values.shape, lambda: [values])


def _linear(
    name: str, size: tuple[int, int], numbers: Callable[[], "_Draws"], scale: np.ndarray
) -> list[PlannedTensor]:
    return packed_tensors(name, size, lambda: numbers().trits(size), scale)


def byte_tokenizer() -> str:
    """tokenizer.json of a byte-level tokenizer without merges: id = byte, then special tokens; a text gets <bos>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=_byte_of)
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))]
    )
    return str(tokenizer.to_str(pretty=False)) + "\n"


def _byte_of(character: str) -> int:
    """The byte for this character of GPT-2's byte-level alphabet."""
    code = ord(character)
    if code < 256:
        return code
    unprintable = [b for b in range(256) if not (33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255)]
    return unprintable[code - 256]


def _config(shape: Shape, head_dim: int) -> dict[str, Any]:
    return hf_config(
        ModelConfig(
            vocab=shape.vocab,
            hidden=shape.hidden,
            inter=shape.inter,
            layers=shape.layers,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=head_dim,
            context=shape.context,
            norm_eps=1e-5,
            rope_theta=500000.0,
            activation="relu2",
            sub_norms=True,
            tied_head=True,
            scale_rule="multiply",
            bos=256,
            eos=(257,),
        )
    )


class _Draws:
    """Random numbers of one seed; every call uses the next indices, so no index is used twice."""

    def __init__(self, seed: int, used: int = 0) -> None:
        self._seed, self._used = seed, used

    def later(self, count: int) -> "Callable[[], _Draws]":
        """Reserve the next ``count`` indices; returns a function that makes a ``_Draws`` that begins with them."""
        seed, begin = self._seed, self._used
        self._used += count
        return lambda: _Draws(seed, begin)

    def _bits(self, count: int) -> np.ndarray:
        """``count`` uint64, uniformly distributed."""
        index = np.arange(self._used + 1, self._used + 1 + count, dtype=np.uint64)
        self._used += count
        return random_bits(self._seed, index)

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """float32 in [0, 1), 24 random bits each."""
        bits = self._bits(int(np.prod(shape))) >> np.uint64(40)
        return (bits.astype(np.float32) * np.float32(2**-24)).reshape(shape)

    def normal(self, shape: tuple[int, ...], std: float) -> np.ndarray:
        """float32, approximately normal with mean 0: std times (the sum of 12 uniforms - 6), whose variance is 1."""
        return np.concatenate(list(self.normal_rows(shape, std)))

    def normal_rows(self, shape: tuple[int, ...], std: float) -> Iterator[np.ndarray]:
        """The same in parts of at most ROWS rows: the embedding of a 2B model would need 10 GB at once."""
        count, width, begin = int(np.prod(shape)), int(np.prod(shape[1:])), self._used
        self._used += 12 * count
        for row in range(0, shape[0], ROWS):
            rows = min(ROWS, shape[0] - row)
            total = np.zeros((rows, *shape[1:]), np.float64)
            for nth in range(12):
                total += _Draws(int(self._seed), begin + nth * count + row * width).uniform(total.shape)
            yield ((total - 6.0) * std).astype(np.float32)

    def trits(self, shape: tuple[int, ...]) -> np.ndarray:
        """int8: -1, 0, +1 with probabilities 5/16, 6/16, 5/16, like absmean of bell-shaped weights (0.37 zeros)."""
        lot = (self._bits(int(np.prod(shape))) >> np.uint64(60)).astype(np.int8).reshape(shape)
        return np.where(lot < 5, -1, np.where(lot < 11, 0, 1)).astype(np.int8)
