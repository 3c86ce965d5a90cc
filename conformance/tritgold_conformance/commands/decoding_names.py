"""Names that the options of ``run`` offer: ways to decode, defects, KV-cache schemes, sparsity rules."""

# "ar" and the presets of tritgold.decode.diffusion_presets, the names of its defects, those of a batch server, of the
# KV-cache schemes and of the sparsity rules; none of these modules is imported for --help, and a test compares them.
DECODE = (
    "ar", "fast-dllm-v2", "fast-dllm-v2-dual", "greedy", "iterative", "adaptive", "small-block", "llada", "dream"
)  # fmt: skip
DEFECTS = (
    "no-commit", "stale-prefix", "overwritten-prompt", "whole-blocks", "past-stop", "short-prompt", "mask-predicted",
    "compact-feed", "lost-block", "shared-refresh",
)  # fmt: skip
SERVER_DEFECTS = ("chunk-tokens", "position-jumps", "repeated-token", "missing-key")
KV_SCHEMES = (
    "f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "fake_fp8", "q8_0", "q5_0", "q4_1", "q4_0", "kivi2", "kivi4",
    "affine", "hadamard", "turboquant", "a4_8", "split",
)  # fmt: skip
RULES = (
    "none", "threshold", "top_k", "adaptive", "entropy", "q_sparse", "a4_8", "zero_skipping", "attention_top_k",
    "attention_threshold", "attention_window", "attention_dynamic",
)  # fmt: skip
