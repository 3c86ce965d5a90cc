"""Block diffusion on the XLA engine."""
