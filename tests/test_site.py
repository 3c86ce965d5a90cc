"""The site builds without a warning, and nothing in it leads nowhere, is unseen or comes from the network."""

import subprocess
import sys
from pathlib import Path

import pytest
import site_checks
from site_sources import linked_sources, without_folders

ROOT = Path(__file__).parents[1]


def test_the_site_builds_strictly_and_nothing_in_it_is_wrong(tmp_path: Path) -> None:
    site = tmp_path / "site"
    words = f"-m sphinx -n -W --keep-going -q -d {tmp_path / 'doctrees'} -c docs . {site}".split()
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert site_checks.complaints(site) == []
    assert (site / "docs" / "faults" / "silu.html").is_file()
    assert 'content="0; url=docs/index.html"' in (site / "index.html").read_text(encoding="utf-8")


def built(folder: Path, body: str, **files: str) -> list[site_checks.Page]:
    """A site of one page, and of files whose names have _ for the dot."""
    (folder / "page.html").write_text(f"<html><body>{body}</body></html>", encoding="utf-8")
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return site_checks.site(folder)


GOOD = (
    '<h1 id="top">A</h1><a href="#top">here</a><a href="other.html#b%C3%A9">there</a><a href="https://a.example">out</a>'
    '<img src="a.svg" alt="A drawing"><img src="data:image/png;base64,AA" alt="Inside"><link rel="canonical" href="https://a">'
)


def good(folder: Path) -> list[site_checks.Page]:
    return built(folder, GOOD, other_html='<p id="bé">', a_svg="<svg><use href='#a'/></svg>", s_css="a {b: url(a.svg)}")


def test_a_site_in_order_has_no_complaints(tmp_path: Path) -> None:
    good(tmp_path)
    assert site_checks.complaints(tmp_path) == []


def test_a_site_without_pages_has_one(tmp_path: Path) -> None:
    assert len(site_checks.complaints(tmp_path)) == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('<a href="gone.html">x</a>', "link to gone.html: no such file"),
        ('<a href="page.html#gone">x</a>', "link to page.html#gone: no such anchor"),
        ('<a href="#gone">x</a>', "link to #gone: no such anchor"),
        ('<a href="../page.html">x</a>', "link to ../page.html: no such file"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, body: str, says: str) -> None:
    (found,) = site_checks.broken_links(built(tmp_path, body))
    assert found.endswith(says)


@pytest.mark.parametrize("alt", ["", 'alt=""', 'alt=" "', 'alt="a.svg"', 'alt="images/a.svg"'])
def test_a_picture_without_a_text_is_found(tmp_path: Path, alt: str) -> None:
    (found,) = site_checks.without_alt(built(tmp_path, f'<img src="images/a.svg" {alt}>'))
    assert "images/a.svg" in found


@pytest.mark.parametrize(
    "body",
    ['<img src="gone.svg" alt="x">', '<script src="gone.js"></script>', '<link rel="icon" href="gone.ico">'],
)
def test_a_picture_or_script_that_is_not_there_is_found(tmp_path: Path, body: str) -> None:
    (found,) = site_checks.missing_pictures(built(tmp_path, body))
    assert "gone" in found


@pytest.mark.parametrize(
    "body",
    [
        '<img src="https://a.example/b.png" alt="x">',
        '<img srcset="https://a.example/b.png 2x" alt="x">',
        '<script src="//a.example/b.js"></script>',
        '<link rel="stylesheet" href="http://a.example/b.css">',
        '<link rel="preconnect" href="https://a.example">',
        '<iframe src="https://a.example"></iframe>',
        "<style>@import 'https://a.example/b.css';</style>",
        '<p style="background: url(https://a.example/b.png)">x</p>',
    ],
)
def test_what_a_page_loads_from_the_network_is_found(tmp_path: Path, body: str) -> None:
    (found,) = site_checks.from_the_network(built(tmp_path, body), tmp_path)
    assert "a.example" in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s_css", "@font-face {src: url('https://a.example/f.woff2')}"),
        ("a_svg", '<svg><image href="https://a.example/b.png"/></svg>'),
        ("a_svg", "<svg><style>p {background: url(https://a.example/b.png)}</style></svg>"),
    ],
)
def test_what_a_style_sheet_or_a_drawing_loads_is_found(tmp_path: Path, name: str, text: str) -> None:
    (found,) = site_checks.from_the_network(built(tmp_path, "", **{name: text}), tmp_path)
    assert "a.example" in found


def test_a_link_to_a_folder_leads_to_the_file_that_describes_it(tmp_path: Path) -> None:
    for folder, file in (("described", "README.md"), ("package", "__init__.py"), ("empty", "x.txt")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).touch()
    found = without_folders("[a](described) [b](package/) [c](empty) [d](gone.md)", tmp_path)
    assert found == "[a](described/README.md) [b](package/__init__.py) [c](empty) [d](gone.md)"


def test_source_files_that_are_linked_become_pages_if_they_are_of_the_repository(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    for path in (tmp_path / "outside.py", root / "linked.py", root / "unlinked.py", root / "docs" / "data.json"):
        path.touch()
    text = "[a](../linked.py) [b](../../outside.py) [c](data.json) [d](../gone.py) [e](../linked.py#anchor)"
    (root / "docs" / "page.md").write_text(text, encoding="utf-8")
    assert linked_sources(root) == ["linked.py"]
