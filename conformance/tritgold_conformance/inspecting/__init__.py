"""Finds out what a model file contains and what is unusual about it."""
