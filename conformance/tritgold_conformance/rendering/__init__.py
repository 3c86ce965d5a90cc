"""Reports for people and for CI, made of ``results.report.Report``: terminal, JUnit, Markdown, HTML, a badge.

``writers`` knows them by the suffix of the file. Each is a function of the report alone: same report, same bytes.
Names, versions and messages come from an engine, or from a report of unknown origin: untrusted until escaped.
"""
