"""Measurements behind the tables and plots of the pages: each module prints one JSON report, the same everywhere.

    PYTHONPATH=docs/_make python -m measure.kv_error > docs/data/kv-error.json

All of it is the golden model's arithmetic on inputs from a seed or on an embedded model, and figures are rounded to
six digits, so a report has the same bytes on every machine. ``make measurements`` writes all of them, the tables and
the plots. No speed is measured here.
"""
