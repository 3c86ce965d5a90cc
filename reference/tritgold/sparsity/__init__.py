"""Sparsity: rules that drop activations or attention weights, and measurements of how much they drop.

A rule makes an ``Arithmetic`` for ``model.forward``; the golden one is not changed, and a trace names the changed one:

    tally = Tally()
    op = sparsity_rule("top_k", keep=0.7).arithmetic(tally=tally)
    forward(tokens, weights, config, arithmetic=op)
    tally.sparsity()  # measured: the share of zero codes

To combine an attention rule with an activation rule, give one's arithmetic to the other as its base.
"""
