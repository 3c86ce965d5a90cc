"""Prepared weights that are kept: what they are kept under, how they lie in a folder, and the engine's way to them."""
