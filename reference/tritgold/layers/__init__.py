"""The operations of a ternary decoder, one pure function each: arrays in, arrays out, no model and no state.

Axis names, used in every signature:

    tokens    positions of this call           heads      query heads
    keys      cached positions + this call's   kv_heads   key and value heads; heads is a multiple of it
    hidden    width of the residual stream     head_dim   width of one head, even
    inter     inner width of the FFN           vocab      rows of the embedding and of the head
    out, in   rows and columns of a linear weight

Float arrays are float32 between operations. Inside, whatever is rounded is computed in float64 by
``tritgold.portable_math`` and rounded once, at the return: that is the golden arithmetic.
"""
