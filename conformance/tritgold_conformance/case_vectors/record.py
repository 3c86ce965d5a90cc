"""python -m tritgold_conformance.case_vectors.record: writes the shipped manifest again after cases or faults changed.

Two minutes: every fault against every case. What it writes is reviewed like source: a hash that changes is an
expected output that changes.
"""

import sys
import tempfile
from pathlib import Path

from tritgold_conformance.case_vectors.case import MANIFEST, encode
from tritgold_conformance.case_vectors.flags import UNSEEN, found_flags, most_telling
from tritgold_conformance.case_vectors.write import write


def main() -> int:
    """Writes manifest.json beside this file; 1 where a fault is shown by no case and UNSEEN does not say why."""
    seen = found_flags()
    unexplained = [name for name, cases in seen.items() if not cases and name not in UNSEEN]
    if unexplained:
        print(f"shown by no case, and no reason given: {', '.join(unexplained)}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        manifest = write(Path(folder) / "vectors", most_telling(seen))
    Path(__file__).with_name(MANIFEST).write_bytes(encode(manifest))
    print(f"{manifest.cases} cases in {len(manifest.groups)} groups, {len(manifest.faults)} faults", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
