"""The embedded golden models: every command's default if no MODEL is given; they can also be selected by name.

All but ``seeded``, which has random weights of realistic size, are trained (each folder has a model card). Their
weights never change; weights of a longer training have a name of their own, with ``-v2`` at its end.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tritgold.golden.seeded import SHAPES, write_seeded_model

DEFAULT = "kjv-ar"
TRAINED = (DEFAULT, "kjv-dlm", "kjv-ar-v2", "kjv-dlm-v2", "skills-ar", "skills-dlm")
MODELS = (*TRAINED, "seeded")


@contextmanager
def embedded_model(name: str = DEFAULT) -> Iterator[Path]:
    """The embedded model of this name (one of MODELS) as a checkpoint folder, which exists until the block ends.

    A trained model is a folder of the package; do not write to it. The seeded one is written each time (at most a
    second) and read like any other checkpoint, so that a judgement of it tests the reader too.

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
    """The folder of a trained model: checkpoint, tokenizer, model card, golden outputs."""
    return Path(__file__).parent / name
