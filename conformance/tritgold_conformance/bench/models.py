"""The models of a benchmark: the one that is timed, and the smaller one that is judged before."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tritgold.config import ModelConfig
from tritgold.golden import DEFAULT, trained_model
from tritgold_conformance.bench.memory import head_weights, ternary_weights
from tritgold_conformance.bench.precheck import quietly_opened
from tritgold_conformance.bench.shapes import GOLDEN, SEED, ModelShape, shape_of
from tritgold_conformance.bench.synthetic import Say, cache_folder, synthetic_model

SMALL = 60_000_000  # most weights of a file that is itself judged


@dataclass(frozen=True)
class Model:
    """name: in the report. path: of the timed model. judged: path of the model that is judged before. for_peers: shape
    of the model on which peers are judged; None: they are judged on ``judged``.
    """

    name: str
    path: Path
    judged: Path
    config: ModelConfig
    for_peers: ModelShape | None = None


def model_of(shape: str | None, file: Path | None, layers: int | None, say: Say) -> Model:
    """The model of a named shape, written if it does not exist yet, or the model in the file.

    Raises what opening a checkpoint raises, and what writing a synthetic one does.
    """
    if shape == GOLDEN:
        file = trained_model(DEFAULT)
    if file is not None:
        config = quietly_opened(file).config
        smaller = _small_of(file, config)
        judged = file if smaller is None else synthetic_model(smaller, cache_folder(), say)
        return Model(shape or file.name, file, judged, config, None if smaller is None else smaller.telling())
    named = shape_of(str(shape))
    assert isinstance(named, ModelShape)
    cut = named if layers is None else named.cut(layers)
    small = synthetic_model(cut.small(), cache_folder(), say)
    path = synthetic_model(cut, cache_folder(), say)
    return Model(cut.name, path, small, cut.config(), cut.small().telling())


def _small_of(file: Path, config: ModelConfig) -> ModelShape | None:
    """A small model with the same matrix sizes; None if the file itself is judged, which takes seconds."""
    widths = {config.hidden, config.inter, config.q_width}
    if ternary_weights(config) + head_weights(config) <= SMALL or any(width % 256 for width in widths):
        return None
    if config.activation == "relu2" and not config.sub_norms:
        return None  # no GGUF architecture has this graph
    own: dict[str, Any] = {"name": f"file-{config.hidden}-{config.inter}", "seed": SEED, "embedding": 0.7}
    own["architecture"] = "bitnet" if config.sub_norms else "llama"
    sizes = {f.name: getattr(config, f.name) for f in fields(ModelShape) if f.name not in own}
    return ModelShape(**own, **sizes).small()
