"""tritgold_xla: ternary models in JAX on XLA-CPU."""
