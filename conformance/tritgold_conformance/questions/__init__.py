"""Everything that an engine is asked, as data."""
