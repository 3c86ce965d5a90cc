"""Comparison of arrays with their tolerances: rounding ties, logits, traces, statistics. Only pure functions."""
