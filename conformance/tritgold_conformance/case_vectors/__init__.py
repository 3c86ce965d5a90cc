"""Conformance cases as data: inputs, expected outputs, tolerances, and the bugs that each case is meant to find.

``write.write`` writes the folder, ``manifest.check`` checks a folder against its hashes, ``judge.judge`` compares an
engine's answers with it. docs/vectors.md describes how to read it in any language.
"""
