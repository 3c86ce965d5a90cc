"""A model over several JAX devices: the same bits as on one."""
