"""Containers (what a file is made of) and packings (how trits lie in bytes)."""
