"""A page leads to itself and to its neighbours, never away."""

import base64

import pytest

from viaduct.reporting import Callout, Link, Node, Page, VirtualTable, render_page
from viaduct.reporting.links import data_uri


@pytest.mark.parametrize(
    "address",
    [
        "https://example.invalid",
        "//example.invalid/x",
        "javascript:alert(1)",
        "/etc/passwd",
        "../drift.csv",
        "",
        "a b",
        "#",
    ],
)
def test_an_address_elsewhere_is_refused(address):
    with pytest.raises(ValueError, match="links to itself"):
        Link("x", address)


def test_so_it_is_for_nodes_and_downloads():
    with pytest.raises(ValueError, match="links to itself"):
        Node("a", "good", address="javascript:alert(1)")
    with pytest.raises(ValueError, match="links to itself"):
        VirtualTable("rows", [], download="https://example.invalid/drift.csv")


@pytest.mark.parametrize("address", ["#rows-57", "drift.csv", "tables/drift-2.csv"])
def test_an_address_on_the_page_or_beside_it_is_accepted(address):
    html = render_page(Page("x", lead=[Callout("bad", "So it is.", links=[Link("look", address)])]))
    assert f'<a href="{address}">look</a>' in html


def test_the_lead_is_above_everything_else():
    html = render_page(Page("x", lead=[Callout("bad", "They differ.")]))
    assert html.index("They differ.") > html.index("<main")
    assert 'class="sign" aria-hidden="true">✗' in html


def test_a_data_uri_holds_the_same_bytes() -> None:
    head, _, body = data_uri(b"\x00\xff").partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(body) == b"\x00\xff"
