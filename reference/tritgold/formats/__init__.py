"""Containers (file formats: their headers and tensors) and packings (how trits are stored in bytes)."""
