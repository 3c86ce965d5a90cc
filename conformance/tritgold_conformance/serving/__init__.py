"""``tritgold serve``: the golden model, or the JAX engine, as an HTTP server; no answer depends on its load."""
