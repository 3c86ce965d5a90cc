"""The embedded golden models: what every command uses when no MODEL is given, and can be asked for by name.

``kjv-ar`` and ``kjv-dlm`` were trained (their folders hold a model card each); ``seeded`` is noise of the right size.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tritgold.golden.seeded import SHAPES, write_seeded_model

DEFAULT = "kjv-ar"
TRAINED = (DEFAULT, "kjv-dlm")
MODELS = (*TRAINED, "seeded")


@contextmanager
def embedded_model(name: str = DEFAULT) -> Iterator[Path]:
    """The embedded model of this name (one of MODELS) as a checkpoint folder, for as long as the block lasts.

    A trained model is a folder of the package, to be read only. The seeded one is written afresh (a second at most)
    and read back through the same door as any other checkpoint, so that judging it judges the reader too.

    Raises KeyError for another name.
    """
    if name in TRAINED:
        yield trained_model(name)
    elif name == "seeded":
        with tempfile.TemporaryDirectory(prefix="tritgold-") as folder:
            path = Path(folder) / name
            path.mkdir()
            write_seeded_model(path, SHAPES[name])
            yield path
    else:
        raise KeyError(name)


def trained_model(name: str) -> Path:
    """The folder of a trained model: checkpoint, tokenizer, card, golden outputs."""
    return Path(__file__).parent / name
