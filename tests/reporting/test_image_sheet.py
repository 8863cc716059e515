"""An image beside a page that is served."""

from __future__ import annotations

import pytest

from viaduct.reporting import ImageSheet, Link, Page, Section, render_page

SHEET = ImageSheet("images/step-1.png", "Input <images>", 128, 96, [Link("step 0", "images/step-0.png")])


def test_a_served_page_may_request_its_own_server_only() -> None:
    html = render_page(Page("live", sections=[Section("Images", "", [SHEET])], version="v1"))
    assert "img-src data: 'self'; connect-src 'self';" in html
    assert 'data-version="v1"' in html
    assert 'src="images/step-1.png" width="128" height="96" alt="Input &lt;images&gt;" class="small"' in html
    assert 'href="images/step-0.png"' in html


def test_a_page_that_is_a_file_requests_nothing() -> None:
    html = render_page(Page("report"))
    assert "'self'" not in html
    assert "data-version" not in html
    assert "data.json" not in html


@pytest.mark.parametrize("address", ["https://example.com/x.png", "//example.com/x.png", "/x.png", "../x.png"])
def test_an_image_from_elsewhere_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="beside it"):
        ImageSheet(address, "", 1, 1)
