"""The contract of an engine: the protocol, the engine under test, the shapes of its answers, the clock."""
