"""Names for the options of ``run`` in addition to ``tritgold.options``: backends, defects, sparsity rules."""

BACKENDS = ("reference", "xla")
# Names of Defect, ServerDefect and the sparsity rules. Those modules are not imported for --help; a test compares them.
DEFECTS = (
    "no-commit", "stale-prefix", "overwritten-prompt", "whole-blocks", "past-stop", "short-prompt", "mask-predicted",
    "compact-feed", "lost-block", "shared-refresh",
)  # fmt: skip
SERVER_DEFECTS = ("chunk-tokens", "position-jumps", "repeated-token", "missing-key")
RULES = (
    "none", "threshold", "top_k", "adaptive", "entropy", "q_sparse", "a4_8", "zero_skipping", "attention_top_k",
    "attention_threshold", "attention_window", "attention_dynamic",
)  # fmt: skip
