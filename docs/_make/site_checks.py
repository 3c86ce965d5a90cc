"""Faults of the built site: ``python docs/_make/site_checks.py FOLDER`` prints it, exit code 1 (``make docs``).

Links and anchors that lead nowhere, pictures without a text for those who cannot see them, pictures that are not there,
and anything that a page would load from the network. Links to the network are followed by nobody, so they may be there.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes that make a browser load something, by the tags that do. <a href> and <link rel=canonical> do not.
LOADS = {
    "img": ("src", "srcset"),
    "script": ("src",),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "input": ("src",),
    "use": ("href", "xlink:href"),
    "image": ("href", "xlink:href"),
}
# Of the ways in which <link> names an address, those at which a browser goes there.
LOADING_LINKS = {"stylesheet", "icon", "mask-icon", "manifest", "preload", "modulepreload", "preconnect"}


@dataclass
class Page(HTMLParser):
    """What a page of HTML has: anchors, links, pictures and the resources that it loads."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    pictures: list[tuple[str, str | None]] = field(default_factory=list)  # source, alternative text
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._style = False
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self._style = tag == "style"
        if tag in ("a", "area") and "href" in given:
            self.links.append(given["href"])
        if tag == "img":
            self.pictures.append((given.get("src", ""), given.get("alt")))
        self.loaded += [given[name] for name in LOADS.get(tag, ()) if name in given]
        if tag == "link" and LOADING_LINKS & set(given.get("rel", "").split()):
            self.loaded.append(given.get("href", ""))
        self.loaded += loaded_by_css(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        """Styles in the page."""
        if self._style:
            self.loaded += loaded_by_css(data)

    def handle_endtag(self, tag: str) -> None:
        """The end of a style."""
        self._style = False


def loaded_by_css(text: str) -> list[str]:
    """Addresses that a style sheet loads.

    >>> loaded_by_css("@import 'a.css'; p {background: url( b.png )}")
    ['b.png', 'a.css']
    """
    urls: list[str] = re.findall(r"url\(\s*['\"]?([^'\")]*?)['\"]?\s*\)", text)
    return urls + re.findall(r"@import\s+['\"]([^'\"]+)", text)


def site(folder: Path) -> list[Page]:
    """The pages of a built site."""
    return [Page(path) for path in sorted(folder.rglob("*.html"))]


def target(page: Path, link: str) -> tuple[Path, str] | None:
    """The file and the anchor that a link leads to; None for one that leads out of the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    return ((page.parent / unquote(parts.path)).resolve() if parts.path else page.resolve()), unquote(parts.fragment)


def broken_links(pages: list[Page]) -> Iterator[str]:
    """Links to files that are not there, and to anchors that their page has not."""
    anchors = {page.path.resolve(): page.anchors for page in pages}
    for page in pages:
        for link in dict.fromkeys(page.links):
            found = target(page.path, link)
            if found is None:
                continue
            file, anchor = found
            if not file.is_file():
                yield f"{page.path}: link to {link}: no such file"
            elif anchor and file in anchors and anchor not in anchors[file]:
                yield f"{page.path}: link to {link}: no such anchor"


def without_alt(pages: list[Page]) -> Iterator[str]:
    """Pictures without a text, or with nothing in it."""
    for page in pages:
        for source, alt in page.pictures:
            if not (alt or "").strip():
                yield f"{page.path}: picture {source}: no alternative text"
            elif Path(urlsplit(source).path).name == Path(alt or "").name and "." in (alt or ""):
                yield f"{page.path}: picture {source}: its alternative text is its file name"


def missing_pictures(pages: list[Page]) -> Iterator[str]:
    """Pictures, style sheets and scripts of the site that are not there."""
    for page in pages:
        for source in dict.fromkeys([*page.loaded, *(source for source, _ in page.pictures)]):
            found = None if source.startswith("data:") else target(page.path, source)
            if found is not None and not found[0].is_file():
                yield f"{page.path}: {source}: no such file"


def from_the_network(pages: list[Page], folder: Path) -> Iterator[str]:
    """What would be loaded from elsewhere: by a page, or by a style sheet or drawing of the site."""
    for page in pages:
        yield from (f"{page.path}: loads {source}" for source in dict.fromkeys(page.loaded) if remote(source))
    for sheet in sorted(folder.rglob("*.css")):
        found = loaded_by_css(sheet.read_text(encoding="utf-8"))
        yield from (f"{sheet}: loads {source}" for source in dict.fromkeys(found) if remote(source))
    for drawing in sorted(folder.rglob("*.svg")):
        picture = Page(drawing)
        yield from (f"{drawing}: loads {source}" for source in dict.fromkeys(picture.loaded) if remote(source))


def remote(address: str) -> bool:
    """Whether it is on the network.

    >>> remote("https://a.example/b.js"), remote("//a.example/b.js"), remote("../b.js"), remote("data:image/png,")
    (True, True, False, False)
    """
    parts = urlsplit(address.strip())
    return bool(parts.netloc) or parts.scheme in ("http", "https", "ftp", "ws", "wss")


def complaints(folder: Path) -> list[str]:
    """Everything that is wrong."""
    pages = site(folder)
    if not pages:
        return [f"{folder}: no pages"]
    return [*broken_links(pages), *without_alt(pages), *missing_pictures(pages), *from_the_network(pages, folder)]


def main() -> None:
    """Print what is wrong."""
    folder = Path(sys.argv[1])
    found = complaints(folder)
    print("\n".join(found) or f"{folder}: {len(site(folder))} pages, links, anchors, pictures and sources in order")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
