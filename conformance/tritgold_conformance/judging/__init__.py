"""From an engine's answers to a verdict, one file for each level."""
