"""Addresses in a page: an anchor on the page itself, a file in its folder or below, or content as a data URI."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

# `#anchor`, or a relative path without a part that begins with a dot.
NEARBY = re.compile(r"#[\w-]+|[\w-][\w.-]*(/[\w-][\w.-]*)*", re.ASCII)


@dataclass(frozen=True)
class Link:
    """A link and its text; the address is on the page itself or beside it: `#rows-57`, `drift.csv`."""

    text: str
    address: str

    def __post_init__(self) -> None:
        check_nearby(self.address)

    def to_json(self) -> dict[str, object]:
        """Return the link as JSON data, from which virtual_table.js draws it in the details of a row."""
        return {"kind": "link", "text": self.text, "address": self.address}


def check_nearby(address: str) -> None:
    """Raise ValueError if an address leads away from the page and its folder."""
    if not NEARBY.fullmatch(address):
        raise ValueError(f"a page links to itself (#anchor) or to a file beside it, not to {address!r}.")


def data_uri(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
