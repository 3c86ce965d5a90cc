"""Precision policies: roundings that an engine declares in addition to the golden ones, and their effect on numbers."""

from tritgold_conformance.policies.policy import FLOAT32, PARTS, Policy, named_policy

__all__ = ["FLOAT32", "PARTS", "Policy", "named_policy"]
