"""The configuration inside an SGLBITNT file -> ModelConfig: it is a config.json and is read as strictly.

For a missing key the original C++ loader uses 0 or 1e-6, which gives a different model; here it is an error.
"""

from pathlib import Path
from typing import Any

from tritgold.config import ModelConfig
from tritgold.errors import ConfigError
from tritgold.formats.hf_config import parse_hf_config


def read_sglbitnt_config(path: Path, config: dict[str, Any], ignore_keys: tuple[str, ...] = ()) -> ModelConfig:
    """Read the configuration of an opened file. ``quantization_mode`` is ignored: offline or online, the file's linears
    are packed.

    Raises ConfigError as ``read_hf_config`` does, and if the class named in ``quantization_config`` divides by its
    scales (``config-contradiction``): the original converter copies such a scale unchanged into the header, where
    scales multiply, so file and configuration describe different models.
    """
    model = parse_hf_config(path, config, None, ignore_keys).model
    if model.scale_rule != "multiply":
        raise ConfigError(
            "divides by its scales, yet those of this container multiply",
            kind="config-contradiction",
            file=path,
            thing="key quantization_config.'linear_class'",
            got="bitlinear",
            expected="autobitlinear",
            hint="convert the original checkpoint instead; its scales cannot be told from their inverses here",
        )
    return model
