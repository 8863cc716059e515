"""The page to try a classifier in the browser: one response, whose Content Security Policy allows no other code."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from viaduct import __version__
from viaduct.reporting.links import data_uri
from viaduct.reporting.page import ICON, read_asset


def render_page(name: str, classes: int, size: int) -> tuple[bytes, dict[str, str]]:
    """Return the page of a model and the response headers."""
    folder = files("viaduct.handover.serving")
    style = read_asset("page.css") + Markup(folder.joinpath("page.css").read_text("utf-8"))
    script = Markup(folder.joinpath("page.js").read_text("utf-8"))
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    html = environment.from_string(folder.joinpath("page.html").read_text("utf-8")).render(
        name=name,
        classes=f"{classes:,}",
        size=size,
        icon=data_uri(ICON, "image/svg+xml"),
        style=style,
        script=script,
        version=__version__,
    )
    policy = (
        f"default-src 'none'; style-src {hash_source(style)}; script-src {hash_source(script)}; img-src data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return html.encode(), headers


def hash_source(text: str) -> str:
    """Return the Content-Security-Policy source that allows an inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
