"""Tokenizers, chat templates and the other texts beside the weights, both ways between containers."""
