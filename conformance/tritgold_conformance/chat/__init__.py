"""Chats as text: the model's own template, rendered within limits."""
