"""The golden run of one input, and the reference as an engine."""
