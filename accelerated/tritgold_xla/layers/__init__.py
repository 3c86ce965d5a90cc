"""The float operations of a ternary decoder in float32, one file per operation, as in ``tritgold.layers``.

Axis names: ``tokens`` positions of a chunk, padding included; ``capacity`` positions of the KV cache; ``heads`` is a
multiple of ``kv_heads``; ``half`` is head_dim / 2; ``inter`` the FFN's inner width. Every product and quotient goes
through ``runtime.ieee``, so a token's result does not depend on the chunk in which it is computed.
"""
