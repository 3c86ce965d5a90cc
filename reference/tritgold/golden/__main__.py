"""``python -m tritgold.golden FOLDER [SHAPE]``: write a seeded model into a new folder."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tritgold.formats.whole_file import written_folder
from tritgold.golden.seeded import SHAPES, write_seeded_model


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0. Exits with 2 and the usage on stderr for wrong arguments, and for a folder that already exists."""
    about = "Write a seeded model, the same bytes on every machine, into a new folder."
    parser = argparse.ArgumentParser(prog="python -m tritgold.golden", description=about)
    parser.add_argument("folder", type=Path, metavar="NEW_FOLDER", help="its parents are made where they are missing")
    parser.add_argument("shape", nargs="?", choices=list(SHAPES), default="seeded", help="default: seeded")
    given = parser.parse_args(arguments)
    if given.folder.exists():
        parser.error(f"{given.folder} exists; name a new folder")
    given.folder.parent.mkdir(parents=True, exist_ok=True)
    with written_folder(given.folder) as scratch:
        write_seeded_model(scratch, SHAPES[given.shape])
    return 0


if __name__ == "__main__":
    sys.exit(main())
