"""The levels of a judgement, from the most certain verdict to the most general: name in reports and files -> title."""

LEVELS = {
    "packed_bytes": "packed bytes, read",
    "operations": "each operation on golden inputs",
    "edge_cases": "operations on edge cases",
    "statistics": "activation statistics",
    "trace": "activations, free-running",
    "logits": "logits of one prefill",
    "continued": "logits of a prompt in pieces",
    "steps": "logits token by token",
    "lengths": "prompts of many lengths",
    "long_state": "long texts in steps",
    "vocabulary": "texts of every id",
    "pieces": "pieces of all kinds",
    "sessions": "sessions one after the other",
    "timed": "the calls that were timed",
    "next_tokens": "next token, most likely tokens",
    "generate": "generated tokens",
    "serve": "tokens of a batch server",
    "diffuse": "tokens by block diffusion",
    "encode": "ids of a text",
    "chat": "ids of a chat",
    "stream": "pieces of text of growing ids",
    "accuracy": "right answers (weakest of all)",
}
# Weaker than every other level: an engine whose logits are all a little wrong answers as well. It can fail an engine,
# and alone it is not enough to conform.
WEAKEST = "accuracy"
BY_OUTPUT = ("operations", "edge_cases", "trace")  # levels that have a case for each output
# Levels that a complete judgement need not have: an engine may be only a forward pass.
WHERE_OFFERED = ("packed_bytes", "generate", "serve", "diffuse", "encode", "chat", "stream", "timed", WEAKEST)
# Levels with sessions beyond the judged text: in ``tritgold check``, and in the suite with its input of 40 tokens.
OF_THE_LADDER = ("lengths", "long_state", "vocabulary", "pieces", "sessions")
