"""Key and value caches: one scheme per file, all with the same small interface.

``kv_scheme(name)`` makes a scheme; ``scheme.cache(config, capacity)`` is the argument of ``forward(..., cache=)``.
A cache appends the keys and values of a pass and returns all of them so far as float32, as the scheme stored them.
"""
