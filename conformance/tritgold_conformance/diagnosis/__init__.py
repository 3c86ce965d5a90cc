"""Diagnosis: finds the known faults with which the golden model gives an engine's outputs, or the first divergence."""
