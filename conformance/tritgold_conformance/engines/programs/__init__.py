"""Programs that run in a separate Python environment; they import nothing of tritgold."""
