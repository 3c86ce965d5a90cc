"""One module for each command, imported when the command is used (``cli``), so that ``tritgold --help`` is fast."""
