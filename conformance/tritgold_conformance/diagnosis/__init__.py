"""Diagnosis: which known fault makes the golden model say what an engine says; or none of them, and where it begins."""
