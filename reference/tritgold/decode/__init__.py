"""Decoding: how logits become tokens."""
