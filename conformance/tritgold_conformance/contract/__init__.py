"""What an engine is: the protocol, the engine under test, the forms of its answers, the clock."""
