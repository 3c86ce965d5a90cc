"""Two forms of the same computation, one slow and one fast on XLA-CPU, timed in turn: docs/xla-cpu.md.

``python -m tritgold_xla.studies > docs/data/xla-forms.json`` measures all of them. Nothing else imports this package.
"""
