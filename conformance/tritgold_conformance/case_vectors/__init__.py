"""Conformance cases as data: inputs, what is right, how far off is right too, and which bugs each case is there for.

``write.write`` makes the folder, ``manifest.check`` holds one against its hashes, ``judge.judge`` holds an engine's
answers against it. docs/vectors.md says how to read it in any language.
"""
