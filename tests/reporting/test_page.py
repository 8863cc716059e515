"""A report page is complete, safe and asks the network for nothing."""

import os
import stat
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from viaduct.reporting import Code, Facts, Page, Section, Table, Tile, render_page, write_page

from .sample_page import sample_page

HOSTILE = "<script>alert('x')</script>"


class Elements(HTMLParser):
    """Tags of a page with their attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def test_a_page_names_no_address_outside_itself():
    html = render_page(sample_page())
    assert "http://" not in html
    assert "https://" not in html
    assert "@import" not in html
    for _, attributes in Elements(html).tags:
        for name in ("src", "href", "srcset", "action", "data"):
            value = attributes.get(name) or "#"
            assert value.startswith(("data:", "#")), f"{name}={value[:60]}"


def test_the_content_security_policy_forbids_requests():
    policies = [a["content"] for _, a in Elements(render_page(Page("x"))).tags if "http-equiv" in a]
    assert "default-src 'none'" in policies[0]


def test_text_from_outside_never_becomes_markup():
    page = Page(
        HOSTILE,
        HOSTILE,
        [Tile(HOSTILE, HOSTILE, HOSTILE)],
        [
            Section(
                HOSTILE,
                HOSTILE,
                [Facts({HOSTILE: HOSTILE}), Code(HOSTILE, HOSTILE), Table([HOSTILE], [[HOSTILE]])],
            )
        ],
    )
    html = render_page(page)
    assert HOSTILE not in html
    assert Elements(html).count("script") == 1, "only the page's own script"


def test_the_title_and_every_section_are_headings():
    elements = Elements(render_page(sample_page()))
    assert elements.count("h1") == 1
    assert elements.count("h2") == len(sample_page().sections)


@pytest.mark.parametrize(("sections", "shown"), [(0, False), (3, False), (4, True)])
def test_contents_appear_once_there_are_more_than_three_sections(sections, shown):
    html = render_page(Page("x", sections=[Section(f"part {n}") for n in range(sections)]))
    assert ("<nav" in html) is shown
    assert ('href="#section-4"' in html) is shown


def test_a_verdict_is_reported_with_a_message_and_not_only_in_colour():
    html = render_page(Page("x", tiles=[Tile("speed", "10", good=False), Tile("top-1", "95", good=True)]))
    assert 'aria-label="not as hoped">✗' in html
    assert 'aria-label="as hoped">✓' in html


def test_a_tile_without_a_judgement_has_no_verdict():
    assert 'class="verdict"' not in render_page(Page("x", tiles=[Tile("time", "6 min")]))


def test_the_same_page_is_the_same_file():
    assert render_page(sample_page()) == render_page(sample_page())


def test_a_file_name_that_is_not_unicode_does_not_lose_the_page(tmp_path):
    path = tmp_path / "report.html"
    write_page(Page("x", sections=[Section("s", "", [Code("caf\udce9.jpg")])]), path)
    assert "caf\\xe9.jpg" in path.read_text(encoding="utf-8")


def test_a_failed_render_leaves_the_old_page(tmp_path):
    path = tmp_path / "report.html"
    write_page(Page("old"), path)
    with pytest.raises(AttributeError):
        write_page(Page("new", sections=[Section("s", "", [Facts(None)])]), path)  # type: ignore[arg-type]
    assert "<title>old</title>" in path.read_text(encoding="utf-8")


def test_a_failed_write_leaves_the_old_page_and_no_draft(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_page(Page("old"), path)

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_page(Page("new"), path)
    assert "<title>old</title>" in path.read_text(encoding="utf-8")
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_page_is_written_into_a_folder_that_does_not_exist_yet(tmp_path):
    path = tmp_path / "runs" / "one" / "report.html"
    write_page(Page("x"), str(path))
    assert os.listdir(path.parent) == ["report.html"]


def test_colleagues_may_read_the_page(tmp_path):
    path = tmp_path / "report.html"
    before = os.umask(0o022)
    try:
        write_page(Page("x"), path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_making_a_page_needs_no_torch():
    code = "import sys, viaduct.reporting; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
