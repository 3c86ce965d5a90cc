"""Key and value caches: one scheme a file, the same small interface.

``kv_scheme(name)`` finds a scheme; ``scheme.cache(config, capacity)`` is what ``forward(..., cache=)`` takes.
A cache appends the keys and values of a pass and gives back all of them as float32, as the scheme kept them.
"""
