"""kernel_config.ini: what is read of it, and every way in which it can be wrong."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import frugal, refusal

from tritgold.errors import FormatError
from tritgold.formats.packings import packing
from tritgold.formats.packings.kernel_ini import tile_options

ONE = {"m": "1536", "k": "4096", "bm": "256", "bk": "128", "bmm": "32"}
# As bitnet.cpp's preset for TL2 of bitnet_b1_58-large has it, its impossible bmm included.
PRESET = """[Kernels_0]
m = 1536
k = 4096
bm = 256
bk = 96
bmm = 32

[Kernels_1]
m = 1536
k = 1536
bm = 128
bk = 192
bmm = 32

[Kernels_2]
m = 4096
k = 1536
bm = 256
bk = 96
bmm = 64

"""


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "kernel_config.ini"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def section(name: str = "Kernels_0", **changed: str | None) -> str:
    values = {key: value for key, value in {**ONE, **changed}.items() if value is not None}
    return f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


def test_the_preset_and_what_the_packings_say_to_it(tmp_path: Path) -> None:
    options = tile_options(written(tmp_path, PRESET))
    assert options == {
        (1536, 4096): {"BM": 256, "BK": 96, "bm": 32},
        (1536, 1536): {"BM": 128, "BK": 192, "bm": 32},
        (4096, 1536): {"BM": 256, "BK": 96, "bm": 64},
    }
    for shape in ((1536, 4096), (1536, 1536)):
        assert packing("tl2", **options[shape]).packed_size(shape)
    assert refusal(lambda: packing("tl2", **options[4096, 1536])).kind == "packing-option"
    assert packing("tl1", **options[4096, 1536]).packed_size((4096, 1536))


def test_each_key_goes_where_it_belongs(tmp_path: Path) -> None:
    text = section(m="1", k="2", bm="3", bk="4", bmm="5")
    assert tile_options(str(written(tmp_path, text))) == {(1, 2): {"BM": 3, "BK": 4, "bm": 5}}


@pytest.mark.parametrize(
    "text",
    [
        "# made by hand\n; twice\n\n" + section(),
        section().replace(" = ", "="),
        section().replace("\n", "\r\n"),
        section().upper().replace("KERNELS", "Kernels"),
        section("anything else"),
        section().rstrip(),
    ],
)
def test_spellings_that_the_original_reads_alike(tmp_path: Path, text: str) -> None:
    assert tile_options(written(tmp_path, text)) == {(1536, 4096): {"BM": 256, "BK": 128, "bm": 32}}


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("", "ini-empty", "names no kernel"),
        ("# nothing\n", "ini-empty", "names no kernel"),
        ("m = 5\n", "ini-syntax", "no section headers"),
        ("[Kernels_0\nm = 5\n", "ini-syntax", "no section headers"),
        (section() + "nonsense\n", "ini-syntax", "nonsense"),
        (section() + section(m="3"), "ini-syntax", "already exists"),
        (section() + "m = 1536\n", "ini-syntax", "already exists"),
        (section() + "M = 1536\n", "ini-syntax", "already exists"),
        (section() + section("Kernels_1", bm="128"), "duplicate-shape", "section 'Kernels_1'"),
        ("[Kernels_0]\n", "ini-key", "found none, expected m, k, bm, bk, bmm"),
        *((section(**{key: None}), "ini-key", "expected m, k, bm, bk, bmm") for key in ONE),
        (section(bnn="1"), "ini-key", "found m, k, bm, bk, bmm, bnn"),
        # ConfigParser would hand the keys of this section to every other.
        ("[DEFAULT]\nbmm = 32\n" + section(bmm=None), "ini-key", "section 'DEFAULT'"),
        *((section(**{key: "0"}), "value", f"{key} is not a size: found '0', expected 1 .. 2**31 - 1") for key in ONE),
        (section(m="-1536"), "value", "section 'Kernels_0': m is not a size: found '-1536'"),
        (section(m="+1536"), "value", "+1536"),
        (section(m="1_536"), "value", "1_536"),
        (section(m="1536.0"), "value", "1536.0"),
        (section(m="0x600"), "value", "0x600"),
        (section(m="1e3"), "value", "1e3"),
        (section(m="nan"), "value", "nan"),
        (section(m=""), "value", "found ''"),
        (section(m="15 36"), "value", "15 36"),
        (section(m="1536 ; out"), "value", "1536 ; out"),
        (section(m="1536\n  7"), "value", "1536\\n7"),
        (section(m="١٥٣٦"), "value", "is not a size"),
        (section(m="2147483648"), "value", "2147483648"),
        (section(m="9" * 5000), "value", "is not a size"),
        (section(m="%(k)s"), "value", "%(k)s"),
        (section(m="\x1b[2J"), "value", "\\x1b[2J"),
        (section("\x1b[2J", m="0"), "value", "section"),
        (section().encode("utf-16"), "unreadable", "cannot be read"),
        (b"\xff\xfe[", "unreadable", "cannot be read"),
        (b"\xef\xbb\xbf" + section().encode(), "ini-syntax", "no section headers"),
        ("#" * 20000, "unreadable", "20000 bytes are too many; at most 8192"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str | bytes, kind: str, says: str) -> None:
    path = written(tmp_path, text)
    error = refusal(lambda: tile_options(path))
    assert isinstance(error, FormatError)
    assert error.kind == kind
    assert says in str(error)
    assert error.file == str(path)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    assert refusal(lambda: tile_options(tmp_path / "missing.ini")).kind == "unreadable"
    assert refusal(lambda: tile_options(tmp_path)).kind == "unreadable"


@pytest.mark.parametrize("line", ["x\n", "[x\n", "[Kernels_0]\n", "m\n ", "[a]\nb\n", "=\n"])
def test_long_nonsense_is_refused_soon(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, "[Kernels_0]\n" + line * (8000 // len(line)))
    with frugal():
        refusal(lambda: tile_options(path))


def test_any_text_gives_sizes_or_a_typed_error(tmp_path: Path) -> None:
    pieces = st.sampled_from(
        ["[Kernels_0]", "[", "]", "\n", " ", "m", "k", "bm", "bk", "bmm", "=", ":", "7", "%", "\0"]
    )
    texts = st.text(max_size=60) | st.lists(pieces, max_size=40).map("".join) | st.just(section())

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(texts)
    def check(text: str) -> None:
        path = written(tmp_path, text.encode("utf-8", "surrogatepass"))
        try:
            options = tile_options(path)
        except FormatError:
            assert refusal(lambda: tile_options(path)).kind
        else:
            assert options
            assert all(size > 0 for shape, tile in options.items() for size in (*shape, *tile.values()))

    check()


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    """A FIFO would wait for ever; /dev/zero has a size of 0 and no end."""
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        error = refusal(lambda path=path: tile_options(path))
        assert (error.kind, error.message) == ("unreadable", "is not a regular file")
