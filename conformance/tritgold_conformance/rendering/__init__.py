"""Reports for people and for CI, made from ``results.report.Report``: terminal, JUnit, Markdown, HTML, a badge.

``writers`` chooses the format by the file's suffix. Each format depends only on the report: same report, same bytes.
Names, versions and messages come from an engine or from an unknown report: they are untrusted until escaped.
"""
