"""Tokenizers, chat templates and the other texts of a checkpoint: reading, and conversion between containers."""
