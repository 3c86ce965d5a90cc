"""Decoding, from logits to tokens: autoregressive, block diffusion, and batches of requests."""
