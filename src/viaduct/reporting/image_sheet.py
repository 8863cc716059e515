"""An image in a separate file, drawn as large as there is room, with links to its earlier versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.links import Link, check_nearby

SMALL_WIDTH = 400  # pixels; an image less wide than this is enlarged without smoothing


@dataclass(frozen=True)
class ImageSheet:
    """An image with links; `address` is a file beside the page, which only a served page (`Page.version`) may show."""

    template: ClassVar[str] = "image_sheet.html"

    address: str
    caption: str
    width: int
    height: int
    links: Sequence[Link] = ()

    def __post_init__(self) -> None:
        check_nearby(self.address)

    @property
    def is_small(self) -> bool:
        return self.width < SMALL_WIDTH
