"""Reports for people and for CI, made of ``tritgold_conformance.report.Report``: JUnit, Markdown, HTML, a badge.

``written`` knows them by the suffix of the file. Each is a function of the report alone: same report, same bytes.
Names, versions and messages come from an engine, or from a report that somebody sent: hostile until escaped.
"""
