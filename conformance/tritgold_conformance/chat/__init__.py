"""Chat templates: the model's own template, rendered with limits."""
