"""Prepared weights, kept for the next process: their key, their files, and how the engine gets them."""
