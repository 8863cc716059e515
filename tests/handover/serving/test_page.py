"""The page's policy: only its own script and style run."""

from __future__ import annotations

import base64
import hashlib
import re

from viaduct.handover.serving.page import render_page

from .conftest import Running


def test_the_policy_allows_this_script_and_this_style_alone(served: Running) -> None:
    answer = served.client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert not re.search(r"(src|href)=\"(https?:)?//", answer.text)
    assert " style=" not in answer.text
    assert " onclick" not in answer.text


def test_html_in_a_name_is_escaped() -> None:
    page, _ = render_page("<script>alert(1)</script>", 10, 32)
    assert b"<script>alert" not in page
