"""One command a file. Heavy imports stand inside the functions, so that ``tritgold --help`` is quick."""
