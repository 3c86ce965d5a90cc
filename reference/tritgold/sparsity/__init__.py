"""Sparsity: rules that leave out activations or attention, and how much they really leave out.

A rule gives an ``Arithmetic`` for ``model.forward``; the golden one stays as it is, and a trace says it is altered:

    tally = Tally()
    op = sparsity_rule("top_k", keep=0.7).arithmetic(tally=tally)
    forward(tokens, weights, config, arithmetic=op)
    tally.sparsity()  # measured: the share of zero codes

Rules for attention take the arithmetic of a rule for activations as their base, and the other way round.
"""
