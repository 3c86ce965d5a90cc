"""Measure every form and print the report: ``python -m tritgold_xla.studies > docs/data/xla-forms.json``."""

import datetime
import itertools
import json
import os
import sys
from importlib.metadata import version

import jax

from tritgold.machine import processor
from tritgold_xla.runtime.flags import cpu_device
from tritgold_xla.studies import floats, ternary
from tritgold_xla.studies.study import measured


def main() -> None:
    """Print one JSON object with one line per form; progress goes to stderr."""
    cpu_device()
    rows = []
    for form in itertools.chain(ternary.forms(), floats.forms()):
        rows.append(measured(form))
        print(f"{form.name}: {rows[-1]['ratio']:g}", file=sys.stderr)
    head = {
        "schema": "tritgold.xla-forms/1",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": processor(),
        "threads": os.environ.get("NPROC") or str(os.cpu_count()),
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
    }
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    fields = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    print(f'{{\n{fields} "forms": [\n{lines}\n ]\n}}')


if __name__ == "__main__":
    main()
