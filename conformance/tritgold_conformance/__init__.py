"""tritgold_conformance: judges any engine against the golden model."""
