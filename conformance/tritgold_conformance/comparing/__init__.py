"""Whether two arrays agree, and within what: tolerances, rounding ties, logits, traces, statistics. Pure functions."""
