"""Rows that need no model file: parts of an engine and of what stands around it, each as a few ways side by side."""
