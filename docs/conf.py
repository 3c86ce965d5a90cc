"""How Sphinx makes the site: ``make docs``, strict, readable from a folder without a network.

The source folder is the repository, so that a link between two Markdown files means on the site what it means on a
code host: ``../conformance/README.md`` is a page of the site too. A source file that some page links to becomes a page
of its own, which shows it (``SourceParser``). So no page needs an address on the network.
"""

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers import Parser
from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "_make"))

from site_sources import LANGUAGES, linked_sources, without_folders  # noqa: E402  only Sphinx imports this file

project = "tritgold"
author = "the tritgold authors"
copyright = "the tritgold authors, Apache-2.0"

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "reference/README.md",
    "accelerated/README.md",
    "conformance/README.md",
    "reference/tritgold/golden/*/README.md",
    *linked_sources(ROOT),
]
exclude_patterns = [".*", "docs/_make/**.md", "build", "dist", "training", "**/__pycache__", "**/node_modules"]
source_suffix = {".md": "markdown", **dict.fromkeys(LANGUAGES, "source")}

myst_heading_anchors = 4  # the anchors that a code host gives: judging.md#operations
myst_links_external_new_tab = False
nitpicky = True
smartquotes = False  # it makes one dash of the two of --json

html_theme = "furo"
html_title = "tritgold"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "start.html"}  # the folder's own index leads to docs/index.html
templates_path = ["_templates"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}
pygments_style = "friendly"
pygments_dark_style = "native"

# Pages that a table of an index page leads to: in the side bar they would be two hundred lines.
LISTED_ELSEWHERE = tuple(
    f"docs/{folder}/" for folder in ("formats", "faults", "modes", "decode-presets", "kv-schemes", "sparsity-rules")
)
LISTED = ("docs/formats/engines",)


class SourceParser(Parser):
    """A source file as a page: its path, and its lines."""

    supported = ("source",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Fill the document."""
        path = Path(document["source"]).resolve().relative_to(ROOT)
        section = nodes.section(ids=["source"], names=["source"])
        section += nodes.title("", path.as_posix())
        section += nodes.literal_block(inputstring, inputstring, language=LANGUAGES[path.suffix], force=True)
        document += section


def _outside_the_side_bar(app: Sphinx, doctree: nodes.document) -> None:
    """Say of a page that no list of contents needs to have it."""
    name = app.env.docname
    by_index = name.startswith(LISTED_ELSEWHERE) and not name.endswith("/README") and name not in LISTED
    card = name.startswith("reference/tritgold/golden/")
    if by_index or card or Path(app.env.doc2path(name)).suffix in LANGUAGES:
        app.env.metadata[name]["orphan"] = True


def _folders(app: Sphinx, name: str, content: list[str]) -> None:
    """Links to a folder lead to the file that says what is in it."""
    content[0] = without_folders(content[0], Path(app.env.doc2path(name)).parent)


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.add_source_parser(SourceParser)
    app.connect("doctree-read", _outside_the_side_bar)
    app.connect("source-read", _folders)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
