"""An image that is a file of its own, drawn as large as there is room, with links to its earlier versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.links import Link, check_nearby

SMALL = 400
"""Pixels across below which a sheet is enlarged, its pixels left square."""


@dataclass(frozen=True)
class ImageSheet:
    """`address` is a file beside the page; only a page that is served may show it (`Page.version`)."""

    template: ClassVar[str] = "image_sheet.html"

    address: str
    caption: str
    width: int
    height: int
    links: Sequence[Link] = ()

    def __post_init__(self) -> None:
        check_nearby(self.address)

    @property
    def small(self) -> bool:
        return self.width < SMALL
