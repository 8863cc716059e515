"""Addresses a page may name: a place on itself, or a file that lies beside it. Nothing further away."""

from __future__ import annotations

import re
from dataclasses import dataclass

NEARBY = re.compile(r"#[\w-]+|[\w-][\w.-]*(/[\w-][\w.-]*)*", re.ASCII)


@dataclass(frozen=True)
class Link:
    """Words to click on, and where they lead: `#rows-57`, `drift.csv`."""

    text: str
    address: str

    def __post_init__(self) -> None:
        check_nearby(self.address)

    def record(self) -> dict[str, object]:
        return {"kind": "link", "text": self.text, "address": self.address}


def check_nearby(address: str) -> None:
    if not NEARBY.fullmatch(address):
        raise ValueError(f"a page links to itself (#place) or to a file beside it, not to {address!r}.")
