"""Logits and greedy continuation of a checkpoint by transformers, in float32; runs in the peers' environment.

    python tests/peers/peer_logits.py CHECKPOINT PROMPT NEW_TOKENS OUT.safetensors

The prompt is encoded by the checkpoint's own tokenizer files. OUT: tokens, logits [tokens, vocab], generated.
"""

import os
import sys
from pathlib import Path

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # before torch loads: the quantisers are wrapped in torch.compile
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(checkpoint: str, prompt: str, new_tokens: str, out: str) -> None:
    torch.set_num_threads(1)
    model, problems = AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not any(problems.values()), problems
    model.to(torch.float32).eval()  # embedding and norms of an offline checkpoint stay bf16 otherwise
    tokens = AutoTokenizer.from_pretrained(checkpoint)(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        logits = model(tokens).logits[0]
        generated = model.generate(tokens, max_new_tokens=int(new_tokens), do_sample=False)[0, tokens.shape[1] :]
    save_file({"tokens": tokens[0], "logits": logits.clone(), "generated": generated.clone()}, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
