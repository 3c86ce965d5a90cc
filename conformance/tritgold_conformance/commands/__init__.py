"""One command a file, imported when it is wanted (``cli``), so that ``tritgold --help`` is quick."""
