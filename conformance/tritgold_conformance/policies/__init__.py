"""Precision policies: roundings that an engine declares beside the golden ones, and what they may do to a number."""

from tritgold_conformance.policies.policy import FLOAT32, PARTS, Policy, named_policy

__all__ = ["FLOAT32", "PARTS", "Policy", "named_policy"]
