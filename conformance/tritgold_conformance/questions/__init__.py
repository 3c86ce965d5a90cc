"""All questions to an engine, and its answers, as data."""
