"""The engines of the field, judged and timed: docs/scoreboard.md and the reports behind it (``make scoreboard``).

    PYTHONPATH=docs/_make python -m scoreboard [ENGINE ...] [--version VERSION]

``engines.toml`` is the manifest. Each version of an engine gets an environment of its own below build/scoreboard, and
each case a process of its own with limits of time and memory. What goes wrong is a row of the report.
"""
