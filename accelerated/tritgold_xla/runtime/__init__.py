"""What everything else runs on: compiler settings, exact float32 operations, chunk sizes, refusals."""
