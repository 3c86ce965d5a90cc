"""Programs that run in an environment of their own; they import nothing of ours."""
