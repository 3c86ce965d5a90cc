"""The configuration inside an SGLBITNT file -> ModelConfig: a config.json, read as strictly as one.

Keys that the original's C++ loader does not find are 0 or 1e-6 there, which is another model; here they are errors.
"""

from pathlib import Path
from typing import Any

from tritgold.config import ModelConfig
from tritgold.errors import ConfigError
from tritgold.formats.hf_config import parse_hf_config


def read_sglbitnt_config(path: Path, config: dict[str, Any], ignore_keys: tuple[str, ...] = ()) -> ModelConfig:
    """Read the configuration of an opened file. Whether it says offline or online makes no difference: the file's
    linears are packed either way.

    Raises ConfigError as ``read_hf_config`` does, and where the class named in ``quantization_config`` divides by its
    scales (``config-contradiction``): the original converter copies such a scale unchanged into a header whose scale
    multiplies, so that file and configuration describe two models.
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
