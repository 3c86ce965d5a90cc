"""tritgold size against files that the converter writes, and against figures worked out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from conversions import bitnet, converted

from tritgold.checkpoint import open_checkpoint
from tritgold_conformance.cli import main
from tritgold_conformance.commands.size import FORMATS


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["size", *map(str, words)], catch_exceptions=False)


def facts(*words: object) -> dict[str, Any]:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def by_format(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["format"]: row for row in found["formats"]}


def test_the_2b_shape_by_hand() -> None:
    """30 x (2 x 2560² + 2 x 640 x 2560 + 3 x 2560 x 6912) weights, the embedding of 128,256 x 2560 tied."""
    found = facts("2b-4t", "--bandwidth", "10", "--context", "1000", "--kv-cache", "f16")
    weights = 30 * (2 * 2560**2 + 2 * 640 * 2560 + 3 * 2560 * 6912)
    assert found["weights"] == {"linears": weights, "embedding": 128_256 * 2560, "head": 0}
    rows = by_format(found)
    assert rows["i2_s"]["linears"] == weights // 4 + 32 * 210
    assert rows["tq2_0"]["linears"] == weights // 256 * 66
    gains = 4 * (2560 + 30 * (3 * 2560 + 6912))
    assert rows["f16"]["total"] == 2 * weights + 2 * 128_256 * 2560 + gains
    assert rows["f16"]["of_f16"] == 1
    cache = 30 * 1000 * 2 * 5 * 128 * 2
    assert found["kv_caches"] == [{"scheme": "f16", "bytes": [cache]}]
    assert rows["i2_s"]["tokens_per_second"] == round(1e10 / (weights // 4 + 6720 + 2 * 128_256 * 2560 + cache), 3)


@pytest.mark.parametrize("to", ["i2_s", "tq1_0", "tq2_0", "iq1_bn", "iq2_bn", "gguf-f16"])
def test_bytes_are_those_of_the_written_file(tmp_path: Path, to: str) -> None:
    source = bitnet(tmp_path)
    written = converted(source, tmp_path, to, embedding="F16")
    total = sum(tensor.data.nbytes for tensor in written.container.tensors.values())
    assert by_format(facts(source))[to.removeprefix("gguf-")]["total"] == total


def test_a_configuration_alone_is_enough(tmp_path: Path) -> None:
    source = bitnet(tmp_path)
    whole = facts(source)
    for file in source.glob("*.safetensors"):
        file.unlink()
    for model in (source, source / "config.json"):
        assert {**facts(model), "types": None, "model": None} == {**whole, "types": None, "model": None}
    assert whole["types"]["U8"]["tensors"] == 7


def test_what_a_format_or_a_cache_cannot_hold_has_no_size(tmp_path: Path) -> None:
    config = json.loads((bitnet(tmp_path) / "config.json").read_text())
    config |= {"hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 24}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = facts(tmp_path / "config.json", "--bandwidth", "1")
    sizes = {name: row["total"] for name, row in by_format(found).items()}
    assert [name for name in FORMATS if sizes[name] is None] == ["tq1_0", "tq2_0", "iq1_bn", "iq2_bn", "q2_0"]
    assert {row["scheme"]: row["bytes"][0] is None for row in found["kv_caches"]}["q4_0"] is False
    assert "rows do not fill its blocks" in run(tmp_path / "config.json").stdout


def test_the_table(tmp_path: Path) -> None:
    source = bitnet(tmp_path)
    shown = run(source, "--bandwidth", "20").stdout
    assert f"{facts(source)['weights']['linears']:,} ternary weights" in shown
    assert "tokens/s at 20 GB/s" in shown
    assert facts(source)["config"]["hidden"] == open_checkpoint(source).config.hidden


@pytest.mark.parametrize(
    ("words", "code"),
    [(("nothing-there",), 3), (("kjv-ar", "--bandwidth", "0"), 2), (("kjv-ar", "--kv-cache", "q9"), 3)],
)
def test_what_is_refused(words: tuple[str, ...], code: int) -> None:
    assert run(*words).exit_code == code
