"""Key and value caches: one scheme a file, the same small interface (append, read back, length)."""
