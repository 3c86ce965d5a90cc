"""tritgold: the golden model of ternary (BitNet b1.58) language models, in NumPy.

Written to be readable rather than fast, with the same bits on every machine. It imports nothing of the JAX engine or of
the conformance suite, which are built on it. Start at ``tritgold.checkpoint.open_checkpoint`` and
``tritgold.model.forward``.
"""
