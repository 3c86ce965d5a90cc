"""``python -m tritgold.golden FOLDER [SHAPE]``: write a seeded model into a new folder."""

import sys
from pathlib import Path

from tritgold.formats.whole_file import written_folder
from tritgold.golden.seeded import SHAPES, write_seeded_model


def main(arguments: list[str]) -> int:
    """Exit code 0, or 2 with the usage on stderr."""
    name = arguments[1] if len(arguments) == 2 else "seeded"
    if len(arguments) not in (1, 2) or name not in SHAPES or Path(arguments[0]).exists():
        print(f"usage: python -m tritgold.golden NEW_FOLDER [{'|'.join(SHAPES)}]", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with written_folder(folder) as scratch:
        write_seeded_model(scratch, SHAPES[name])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
