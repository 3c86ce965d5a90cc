"""What all other modules use: compiler settings, exact float32 operations, chunk sizes, checks."""
