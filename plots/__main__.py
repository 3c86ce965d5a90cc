"""``python plots``: every figure again, from the reports in docs/data. ``python plots NAME...``: of these scripts."""

import importlib
import sys
from pathlib import Path

SCRIPTS = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("drawing", "__main__"))

if __name__ == "__main__":
    for name in sys.argv[1:] or SCRIPTS:
        importlib.import_module(name).main()
