"""``python -m tritgold_conformance``: the ``tritgold`` command."""

from tritgold_conformance.cli import main

main(prog_name="tritgold")
