"""Engines, as the judge sees engines: ours, programs, servers, and the peers that everybody has."""
