"""The HTML page: well-formed, self-contained, labelled, and deaf to what an engine calls itself."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import msgspec
import pytest

from tritgold_conformance.rendering.html import to_html
from tritgold_conformance.results.report import Report

VOID = {"meta", "br"}


class Page(HTMLParser):
    """What is wrong with a page, as text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.figures: list[dict[str, bool]] = []
        self.feed(page)
        self.close()
        self.wrong += [f"{tag} is not closed" for tag in self.open]
        self.wrong += [f"a figure lacks {part}" for f in self.figures for part, there in f.items() if not there]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe", "object", "embed", "base", "image", "use", "form", "a"):
            self.wrong.append(f"{tag} can reach outside")
        for name, value in attrs:
            if name.startswith("on") or name in ("src", "href", "srcset", "style", "xlink:href", "action", "poster"):
                self.wrong.append(f"attribute {name}")
            if re.search(r"https?:|url\(", value or "") and name != "aria-label":
                self.wrong.append(f"{name}={value}")
        if tag == "figure":
            self.figures.append({"a caption": False, "a labelled image": False})
        if self.figures and tag == "figcaption":
            self.figures[-1]["a caption"] = True
        if tag == "svg" and "aria-hidden" not in dict(attrs):
            said = dict(attrs)
            labelled = said.get("role") == "img" and bool((said.get("aria-label") or "").strip())
            if "figure" in self.open:
                self.figures[-1]["a labelled image"] = labelled
            elif not labelled:
                self.wrong.append("an image without a label")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"{tag} is closed and was not open")

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["style"] and re.search(r"@import|@font-face|url\(", data):
            self.wrong.append("the style fetches something")


@pytest.mark.parametrize(
    "page",
    [
        "<p><b></p>",
        "<p>",
        "<script>1</script>",
        '<p style="x">a</p>',
        '<p title="https://a.b">a</p>',
        "<style>@import 'x'</style>",
        "<figure><svg></svg></figure>",
        "<figure><figcaption>a</figcaption></figure>",
        '<svg role="img" aria-label=" "></svg>',
        "<p onclick=a>a</p>",
    ],
)
def test_the_check_of_pages_can_fail(page: str) -> None:
    assert Page(page).wrong


def test_a_page_is_well_formed_labelled_and_fetches_nothing(reports: dict[str, Report], kind: str) -> None:
    page = to_html(reports[kind])
    assert not Page(page).wrong
    assert page == to_html(reports[kind]), "the same report, the same bytes"
    page.encode("utf-8")
    assert all(c.isprintable() or c == "\n" for c in page)
    assert "default-src 'none'" in page
    assert len(page) < 400_000


def test_what_an_engine_calls_itself_is_text(reports: dict[str, Report]) -> None:
    page = to_html(reports["failing"])
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x00\\x1b[31m\\ud800" in page
    assert "<script" not in page
    assert "<img" not in page


def test_a_passing_engine_has_every_chart(reports: dict[str, Report]) -> None:
    page = to_html(reports["passing"])
    assert "✓ conforms" in page
    assert "not assessed:" not in page.partition("<section>")[0], "text stands for logits, and they are there"
    for title in (
        "golden inputs, by layer",
        "activations, by position",
        "Root mean square of ffn_act",
        "KL divergence",
        "Tokens a second.",
    ):
        assert f"{title}" in page
    assert "Failures" not in page
    assert page.count("<figure>") == 3 + 5 + 2 + 1


def test_a_failing_engine_has_its_failures_and_commands(reports: dict[str, Report]) -> None:
    report = reports["failing"]
    page = to_html(report)
    assert "operations: ffn_act (layers 0-1)" in page
    ids = ",".join(map(str, report.tokens))
    for layer in range(2):
        asked = f"&#39;my_module:My Engine&#39; --model seeded --only layers.{layer}.ffn_act --ids {ids}"
        assert asked in page, "the longest word stays the last"
    assert page.count('<g class="k6">') + page.count('<g class="k5">') >= 2
    assert "Not measured: only an engine that conforms is timed" in page


def test_half_an_engine_is_said_to_be_half_an_engine(reports: dict[str, Report]) -> None:
    page = to_html(reports["half"])
    assert "not assessed: operations, edge_cases, steps" in page.partition("<section>")[0]
    assert "Not assessed. operations: the engine has no operation()" in page
    assert page.count('<span class="status good">') == 3
    assert page.count('<span class="status none">') == 19


def test_nothing_is_no_pass(reports: dict[str, Report]) -> None:
    page = to_html(reports["nothing"])
    assert "status good" not in page
    assert '<span class="verdict none">- nothing was checked</span>' in page
    assert "<figure>" not in page


def test_what_is_not_finite_is_marked_and_never_drawn(reports: dict[str, Report]) -> None:
    page = to_html(reports["not finite"])
    assert "the engine&#39;s is not finite" in page
    assert "not finite, or another shape" in page
    assert not re.search(r' (d|x|y|cx|cy|width|height)="[^"]*(nan|inf)', page)


def test_statistics_alone_are_drawn_too(reports: dict[str, Report]) -> None:
    page = to_html(reports["statistics"])
    section = page.partition("Activations, engine against golden</h2>")[2].partition("</section>")[0]
    assert section.count("<figure>") == 5
    for what in ("Root mean square of attn_mix", "Root mean square of ffn_act", "Share of zeros of ffn_act"):
        assert what in section
    assert "Engine and golden are at most" in section
    assert section.count("the engine&#39;s is not finite") == 2, (
        "caption and label of one; what was not given is not a failure"
    )
    pair = reports["statistics"].statistics["layers.0.attn_mix"]
    assert (pair["engine"].max, pair["engine"].rms, pair["engine"].zeros, pair["engine"].finite) == (1.0, None, None, 1)
    assert "Activation statistics, " in page


def test_whatever_statistic_is_given_is_drawn(reports: dict[str, Report]) -> None:
    page = to_html(reports["one statistic"])
    section = page.partition("Activations, engine against golden</h2>")[2].partition("</section>")[0]
    assert section.count("<figure>") == 1
    assert "Standard deviation of q.out" in section
    assert "Equal." in section


def test_a_report_of_many_layers_and_positions_stays_small(reports: dict[str, Report]) -> None:
    report = reports["passing"]
    operations = [c for c in report.operations if "layers.0." in c.name]
    assert operations
    many = [replace(c, name=c.name.replace("layers.0.", f"layers.{n}.")) for n in range(60) for c in operations]
    page = to_html(msgspec.structs.replace(report, operations=many))
    assert not Page(page).wrong
    assert len(page) < 700_000
