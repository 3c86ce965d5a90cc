"""Forms of the same computation that XLA-CPU makes slow or fast code of, timed side by side: docs/xla-cpu.md.

``python -m tritgold_xla.studies > docs/data/xla-forms.json`` measures all of them. Nothing at run time needs this.
"""
