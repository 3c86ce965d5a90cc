"""Logits and greedy continuation of a checkpoint by transformers, in float32; runs in the peers' environment.

    python tests/peers/peer_logits.py CHECKPOINT PROMPT NEW_TOKENS OUT.safetensors

The prompt is encoded by the checkpoint's own tokenizer files. OUT: tokens, logits [tokens, vocab], generated.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance/tritgold_conformance/engines/programs"))
from transformers_peer import open_transformers


def main(checkpoint: str, prompt: str, new_tokens: str, out: str) -> None:
    model = open_transformers(checkpoint)
    import torch  # after it: it says how torch is to load
    from safetensors.torch import save_file
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(checkpoint)(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        logits = model(tokens).logits[0]
        generated = model.generate(tokens, max_new_tokens=int(new_tokens), do_sample=False)[0, tokens.shape[1] :]
    save_file({"tokens": tokens[0], "logits": logits.clone(), "generated": generated.clone()}, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
