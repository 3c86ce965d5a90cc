"""Export a trained run as a Hugging Face folder: packed trits, scales, bf16 embedding and gains, tokenizer, texts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tokenizers import Tokenizer

from tritgold.errors import ConfigError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.hf_writer import bf16_tensor, packed_tensors, write_hf_folder
from tritgold.formats.whole_file import written_folder
from tritgold_xla.training.qat import trits_and_scale
from tritgold_xla.training.recipe import Recipe
from tritgold_xla.training.run_state import Run
from tritgold_xla.training.tokens import BOS, CHAT_TEMPLATE, EOS, EOT, MASK, SPECIAL

NAMES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_sub_norm": "self_attn.attn_sub_norm",
    "ffn_sub_norm": "mlp.ffn_sub_norm",
}


def export(run: Run, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the model; an existing folder is replaced when the new one is complete.

    Raises ConfigError for a float32 run (``ternary`` False), which a ternary checkpoint cannot hold.
    """
    if not run.recipe.ternary:
        raise ConfigError("is not a ternary model", kind="export", thing=f"run {run.recipe.name!r}")
    texts = {
        "tokenizer.json": str(tokenizer.to_str(pretty=False)) + "\n",
        "tokenizer_config.json": _json(tokenizer_config(run.recipe)),
        "generation_config.json": _json({"bos_token_id": BOS, "eos_token_id": [EOS, EOT], "do_sample": False}),
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with written_folder(folder, replace=True) as scratch:
        write_hf_folder(scratch, model_config(run.recipe), tensors(run), texts)


def tensors(run: Run) -> Iterator[PlannedTensor]:
    """The tensors, with their Hugging Face names."""
    yield _bf16("model.embed_tokens.weight", run.parameters["embedding"])
    quantise = jax.jit(trits_and_scale)
    for n in range(run.recipe.layers):
        for ours, theirs in NAMES.items():
            name, master = f"model.layers.{n}.{theirs}", run.parameters["layers"][ours][n]
            if master.ndim == 1:
                yield _bf16(f"{name}.weight", master)
            else:
                trits, scale = quantise(master)
                yield from _packed(name, np.asarray(trits).astype(np.int8), np.asarray(scale))
    yield _bf16("model.norm.weight", run.parameters["final_norm"])


def _bf16(name: str, values: jax.Array) -> PlannedTensor:
    return bf16_tensor(name, values.shape, lambda: [np.asarray(values)])


def _packed(name: str, trits: np.ndarray, scale: np.ndarray) -> list[PlannedTensor]:
    rows, columns = trits.shape
    return packed_tensors(name, (rows, columns), lambda: trits, scale)


def model_config(recipe: Recipe) -> dict[str, Any]:
    """The content of config.json."""
    config = {
        "architectures": ["BitNetForCausalLM"],
        "model_type": "bitnet",
        "vocab_size": recipe.vocab,
        "hidden_size": recipe.hidden,
        "intermediate_size": recipe.inter,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.kv_heads,
        "head_dim": recipe.hidden // recipe.heads,
        "hidden_act": "relu2",
        "max_position_embeddings": recipe.context,
        "rms_norm_eps": recipe.norm_eps,
        "rope_theta": recipe.rope_theta,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "eos_token_id": [EOS, EOT],
        "pad_token_id": EOS,
        "dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "bitnet",
            "linear_class": "autobitlinear",
            "quantization_mode": "offline",
        },
    }
    diffusion = {"bd_size": recipe.block, "mask_token_id": MASK} if recipe.objective == "block diffusion" else {}
    return config | diffusion


def tokenizer_config(recipe: Recipe) -> dict[str, Any]:
    """The content of tokenizer_config.json: special tokens and the chat template."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BOS],
        "eos_token": SPECIAL[EOS],
        "pad_token": SPECIAL[EOS],
        "mask_token": SPECIAL[MASK],
        "additional_special_tokens": [SPECIAL[EOT]],
        "model_max_length": recipe.context,
        "chat_template": CHAT_TEMPLATE,
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
