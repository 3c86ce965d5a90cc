"""Engines of ours, as the judge sees engines. Each module offers ``open_engine(path)``."""
