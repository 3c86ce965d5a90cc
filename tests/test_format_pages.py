"""The pages and pictures of docs/formats are those that the code makes now; tables written by hand agree with it."""

import re
from pathlib import Path

import pytest
from docstrings import inline
from scripts import script

from tritgold.architectures import GGUF_ARCHITECTURES
from tritgold.formats.ggml_types import FORK_ARCHITECTURES, type_names
from tritgold.formats.packings import PACKINGS, packing
from tritgold.formats.packings.byte_map import EXAMPLES
from tritgold.formats.packings.i2_s import I2S

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "formats"
BY_HAND = {"engines.md", "container-gguf.md", "container-safetensors.md", "container-sglbitnt.md"}
ACTIVATIONS = {"relu2": "squared ReLU", "silu": "SiLU", "gelu_tanh": "GELU (tanh)"}


format_pages, byte_maps = script("docs/_make/format_pages.py"), script("plots/byte_maps.py")


def test_pages_are_what_the_code_says_now() -> None:
    made = format_pages.pages()
    assert {path.name for path in DOCS.iterdir()} == made.keys() | BY_HAND
    stale = [name for name, text in made.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run make formats"


@pytest.mark.parametrize("name", EXAMPLES)
def test_pictures_are_what_the_packings_do_now(name: str) -> None:
    assert (byte_maps.FOLDER / f"{name}.svg").read_text(encoding="utf-8") == byte_maps.svg(name), "run make formats"


@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_is_drawn_outside_the_picture(name: str) -> None:
    drawn = (byte_maps.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    box = r'<rect x="(.+?)" y="(.+?)" width="(.+?)" height="(.+?)" fill'
    ends = [(float(x) + float(w), float(y) + float(h)) for x, y, w, h in re.findall(box, drawn)]
    width, height = map(int, re.findall(r'width="(\d+)" height="(\d+)"', drawn)[0])
    assert max(x for x, _ in ends) < width
    assert max(y for _, y in ends) < height


def test_there_is_a_picture_an_example_and_a_page_shows_it() -> None:
    assert {path.stem for path in byte_maps.FOLDER.iterdir()} == EXAMPLES.keys()
    for name, (layout, _) in EXAMPLES.items():
        assert f"(../images/byte-maps/{name}.svg)" in (DOCS / f"{layout.name}.md").read_text(encoding="utf-8")


def test_a_changed_docstring_or_option_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    before = format_pages.page("i2_s")
    monkeypatch.setattr(I2S, "invalid_code", "code 4")
    coded = format_pages.page("i2_s")
    monkeypatch.setattr(I2S, "__doc__", "Another layout.\n\n::\n\n    bits 7 6\n\n>>> 1 + 1\n2\n")
    documented = format_pages.page("i2_s")
    assert len({before, coded, documented}) == 3
    assert "Another layout.\n\n```text\nbits 7 6\n```\n\n```python\n>>> 1 + 1\n2\n```\n" in documented


def test_a_changed_packing_changes_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    before = byte_maps.svg("i2_s-128")
    monkeypatch.setitem(EXAMPLES, "i2_s-128", (packing("i2_s", block=64), (1, 128)))
    assert byte_maps.svg("i2_s-128") != before


def test_what_is_outside_code_is_escaped() -> None:
    assert inline("``a * b`` is 2**3, |v| < 4, c * d") == r"`a * b` is 2\*\*3, \|v\| \< 4, c * d"


def test_the_index_leads_to_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {f"{name}.md" for name in PACKINGS} | BY_HAND | {"dense.md"}


def rows(page: str, first: str) -> list[list[str]]:
    """The table whose head begins with ``first``, without its head."""
    lines = (DOCS / page).read_text(encoding="utf-8").split(f"\n| {first} |", 1)[1].splitlines()[2:]
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


def test_the_numbers_of_tensor_types_mean_what_the_reader_takes_them_for() -> None:
    shown = [row[:3] for row in rows("container-gguf.md", "number")]
    expected = []
    for number in range(34, 43):
        others, fork = type_names(number, "llama"), {type_names(number, arch) for arch in FORK_ARCHITECTURES}
        assert len(fork) == 1
        expected.append([str(number), " or ".join(others), " or ".join(fork.pop())])
    assert shown == expected


def test_the_architectures_are_those_of_the_reader() -> None:
    found = {}
    for names, activation, sub_norms, order in rows("container-gguf.md", "arch"):
        for name in re.findall(r"`(.+?)`", names):
            found[name] = activation, sub_norms == "yes", order.startswith("permuted")
    kinds = GGUF_ARCHITECTURES.items()
    assert found == {name: (ACTIVATIONS[kind.gguf[name]], kind.sub_norms, kind.permuted) for name, kind in kinds}
