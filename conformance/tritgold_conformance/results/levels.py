"""The levels of a judgement, from the surest verdict to the widest: name in reports and xfail files -> title."""

LEVELS = {
    "packed_bytes": "packed bytes, read",
    "operations": "each operation on golden inputs",
    "edge_cases": "operations on edge cases",
    "statistics": "activation statistics",
    "trace": "activations, free-running",
    "logits": "logits of one prefill",
    "continued": "logits of a prompt in pieces",
    "steps": "logits token by token",
    "lengths": "logits of prompts of many lengths",
    "long_state": "logits of long texts in steps",
    "vocabulary": "logits of texts of every id",
    "pieces": "logits of pieces of all kinds",
    "sessions": "logits of sessions one after the other",
    "timed": "logits of the calls that were timed",
    "next_tokens": "next token, likeliest tokens",
    "generate": "generated tokens",
    "serve": "tokens of a batch server",
    "diffuse": "tokens by block diffusion",
    "encode": "ids of a text",
    "chat": "ids of a chat",
    "stream": "pieces of text of growing ids",
}
BY_OUTPUT = ("operations", "edge_cases", "trace")  # levels that have a case for each output
# Levels that a full judgement need not have: an engine may be a forward pass alone.
WHERE_OFFERED = ("packed_bytes", "generate", "serve", "diffuse", "encode", "chat", "stream", "timed")
# Levels of sessions beyond the judged text: of ``tritgold check``, and of the suite with its input of 40 tokens.
OF_THE_LADDER = ("lengths", "long_state", "vocabulary", "pieces", "sessions")
