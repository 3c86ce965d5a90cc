"""The embedded golden models: what every command uses when no MODEL is given."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tritgold.golden.seeded import SHAPES, write_seeded_model


@contextmanager
def embedded_model() -> Iterator[Path]:
    """The embedded model as a checkpoint folder, for as long as the block lasts.

    It is written afresh from its seed (a second at most) and read back through the same door as any other
    checkpoint, so that judging it judges the reader too.
    """
    with tempfile.TemporaryDirectory(prefix="tritgold-") as folder:
        path = Path(folder) / "seeded"
        path.mkdir()
        write_seeded_model(path, SHAPES["embedded"])
        yield path
